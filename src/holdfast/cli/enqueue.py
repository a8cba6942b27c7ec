"""`enqueue`: enqueue a job from the command line, and wait for its result if asked to."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import click
import msgspec

from holdfast.cli.base import DURATION, cli, find_app, output_option, print_data, talk, to_json, url_option
from holdfast.errors import BadArguments
from holdfast.model.job import AFTER_FAILURE
from holdfast.tasks.task import Task


@cli.command()
@click.argument("task")
@click.argument("arguments", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--app", help="The application: module:name or file.py. Default: the setting `app`.")
@click.option("--json", "document", metavar="OBJECT", help="Arguments as a JSON object.")
@click.option("--queue", help="Another queue than the task's.")
@click.option("--priority", type=int, help="-100 to 100, larger is sooner.")
@click.option("--delay", type=DURATION, help="How long to wait before it is due: 60, 10m, 1h.")
@click.option("--key", help="While a job with this key is unfinished, return that one instead.")
@click.option(
    "--after-failure",
    type=click.Choice(AFTER_FAILURE),
    help="What to do if the job with this key failed: enqueue a new one, retry it, or return it.",
)
@click.option("--wait", is_flag=True, help="Wait for the job, and print its result.")
@click.option("--timeout", type=DURATION, help="How long to wait at most: 30, 10m.")
@output_option
@url_option
def enqueue(
    task: str, arguments: tuple[str, ...], app: str | None, document: str | None, queue: str | None,
    priority: int | None, delay: float | None, key: str | None, after_failure: str | None, wait: bool,
    timeout: float | None, output: str, url: str | None,
) -> None:  # fmt: skip
    """Enqueue a job of TASK and print its id. A VALUE is text where the task takes text, else JSON.

    With --wait, print the result; exit status 7: it failed or was cancelled, 8: not finished in time.

    \b
    Examples:
      holdfast enqueue audit url=https://example.org --priority 5
      holdfast enqueue audit --json '{"url": "https://example.org"}' --wait --timeout 30
    """
    if timeout is not None and not wait:
        raise BadArguments("--timeout says how long to --wait: give both")
    application = find_app(app, url=url)
    found = application.find_task(task)
    options: dict[str, Any] = {"queue": queue, "priority": priority, "key": key, "delay": delay}
    options["after_failure"] = after_failure
    given = {name: value for name, value in options.items() if value is not None}
    job = found.using(**given).enqueue(**read(found, arguments, document))
    if not job.created:
        talk(f"job {job.id} has this key already: no new one was enqueued")
    result = {"result": job.wait(timeout)} if wait else {}
    if output == "table":
        click.echo(to_json(result["result"]) if wait else job.id)
    else:
        data = {"id": job.id, "task": job.task, "created": job.created, "state": job.state.value, **result}
        print_data([data], output, one=True)


def read(task: Task[..., Any], pairs: tuple[str, ...], document: str | None) -> dict[str, Any]:
    """The arguments of a command line, read by the types of the task's parameters."""
    given: dict[str, Any] = {}
    if document is not None:
        try:
            given = msgspec.json.decode(document, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise BadArguments(f"--json takes a JSON object, as in --json '{{\"n\": 1}}': {error}") from None
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise BadArguments(f"{pair!r} is no argument of {task.name}: write name=value")
        if name in given:
            raise BadArguments(f"the argument {name!r} of {task.name} is given twice")
        hints = task._signature.hints
        if name not in hints:
            near = get_close_matches(name, hints, 1)
            hint = f", perhaps {near[0]!r}" if near else ""
            takes = f"it takes {', '.join(hints)}" if hints else "it takes none"
            raise BadArguments(f"{task.name} has no argument {name!r}{hint}; {takes}")
        given[name] = _value(text, hints[name])
    return given


def _value(text: str, hint: Any) -> Any:
    if hint is not Any:
        try:
            msgspec.convert(text, hint)
        except msgspec.ValidationError:
            pass
        else:
            return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text  # the task itself refuses it if it does not fit
