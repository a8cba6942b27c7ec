"""The commands that enqueue a job like this one, to be copied: for a shell, Python, SQL, HTTP, and a test of it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from holdfast.harmless import harmless
from holdfast.model.job import JobRecord
from holdfast.model.record import shown
from holdfast.model.text import named, quoted

if TYPE_CHECKING:
    from holdfast.app import Holdfast

ORIGIN = "{origin}"  # stands for where the server is, which only a request tells
KEY = '-H "Authorization: Bearer $HOLDFAST_KEY"'


class Copy(msgspec.Struct, frozen=True):
    id: str
    title: str
    text: str


def copies(app: Holdfast, job: JobRecord) -> list[Copy]:
    """Secrets are hidden in them, as everywhere."""
    if job.source is not None:
        return _looking(app, job)
    args = shown(job.args, app._secrets(job.task))
    if not isinstance(args, dict):
        return _looking(app, job)
    given = [
        Copy("curl", "curl", _curl(app, job, args)),
        Copy("python", "Python", _python(job, args)),
        Copy("sql", "SQL", _sql(app, job, args)),
        Copy("cli", "Command line", _cli(job, args)),
        Copy("pytest", "pytest", _pytest(job, args)),
    ]
    return given


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _curl(app: Holdfast, job: JobRecord, args: dict[str, Any]) -> str:
    reachable = job.task in app.tasks and app.tasks[job.task]._defaults.http is not None
    if reachable:
        body: dict[str, Any] = {"args": args, **({"priority": job.priority} if job.priority else {})}
        path = f"/v1/tasks/{quote(job.task, safe='')}/jobs"
    else:
        body, path = {"args": {}}, f"/v1/jobs/{job.id}/replay"
    return f"curl -X POST {ORIGIN}{path} {KEY} \\\n  -H 'Content-Type: application/json' \\\n  -d {quoted(_json(body))}"


def _python(job: JobRecord, args: dict[str, Any]) -> str:
    options = {"queue": job.queue, **({"priority": job.priority} if job.priority else {})}
    options |= {"tags": list(job.tags)} if job.tags else {}
    using = ", ".join(f"{name}={value!r}" for name, value in options.items())
    return f"hf.find_task({job.task!r}).using({using}).enqueue({_arguments(args)})"


def _arguments(args: dict[str, Any]) -> str:
    if all(name.isidentifier() for name in args):
        return ", ".join(f"{name}={value!r}" for name, value in args.items())
    return f"**{args!r}"


def _sql(app: Holdfast, job: JobRecord, args: dict[str, Any]) -> str:
    values = [_literal(job.queue), _literal(job.task), _literal(_json(args)), str(job.priority), str(job.max_attempts)]
    columns = "queue, task, args, priority, max_attempts"
    return f"insert into {_table(app)} ({columns})\nvalues ({', '.join(values)});"


def _table(app: Holdfast) -> str:
    settings = app.settings
    if settings.url.startswith("sqlite"):
        return _identifier(f"{settings.prefix}jobs")
    return f"{_identifier(settings.schema)}.jobs"


def _identifier(name: str) -> str:
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _cli(job: JobRecord, args: dict[str, Any]) -> str:
    priority = f" --priority={job.priority}" if job.priority else ""
    document = quoted(_json(args))
    return f"holdfast enqueue --queue={quoted(job.queue)}{priority} \\\n  --json {document} {named(job.task)}"


def _pytest(job: JobRecord, args: dict[str, Any]) -> str:
    error = f": {job.error_code}: {job.error_message}" if job.error_code else ""
    return (
        "from holdfast import testing\n"
        "from app import hf  # your application\n\n\n"
        f"def test_{re.sub(r'[^A-Za-z0-9]+', '_', job.task).strip('_') or 'a_task'}_as_in_job_{job.id}():\n"
        f"    # it was {job.state.value}{harmless(error)}\n"
        "    with testing.store(hf) as kit:\n"
        f"        job = hf.find_task({job.task!r}).enqueue({_arguments(args)})\n"
        '        kit.run_due(expect="succeeded")\n'
        '        assert job.refresh().state == "succeeded"\n'
    )


def _looking(app: Holdfast, job: JobRecord) -> list[Copy]:
    """A row of a table is inserted there, not here: so these only show the job."""
    return [
        Copy("curl", "curl", f"curl {ORIGIN}/v1/jobs/{job.id}/history {KEY}"),
        Copy("python", "Python", f"hf.job({job.id!r})"),
        Copy("sql", "SQL", f"select * from {_table(app)} where id = {job.id};"),  # noqa: S608 - it is shown, not run
        Copy("cli", "Command line", f"holdfast jobs show {job.id}"),
    ]
