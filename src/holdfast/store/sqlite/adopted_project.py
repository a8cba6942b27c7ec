"""The job decides: what writes to the rows of an adopted table what becomes of their jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.model.lifecycle import UNFINISHED, State
from holdfast.model.mapping import WHOLE
from holdfast.model.table import TableColumn
from holdfast.store.adopted import literal, quoted, said_by, word_of, words_in
from holdfast.store.sqlite.adopted_templates import AMONG, Templates, Tokens, filled, foreign
from holdfast.store.sqlite.adopted_values import KEPT, misfits, path_of, result_of


class Projecting:
    def __init__(self, templates: Templates) -> None:
        self._templates = templates
        self._resolved = templates.resolved
        self._mapping = templates.mapping

    def triggers(self) -> list[str]:
        """The TEMP triggers on our jobs, for a connection of ours."""
        tokens = self._job_tokens("new") | {"waits_changed": self._job_waits_changed}
        made = ["project_state"]
        if self._waiting("new"):
            made.append("project_wait")
        if self._mapping.counts is not None:
            made.append("project_counts")
        return [self._temp(name, tokens) for name in made]

    def settling(self) -> list[str]:
        """Statements that write the jobs :ids to their rows."""
        tokens = self._job_tokens("j", since=False)
        counts = self._counts("j", f"from {self._templates.jobs} j", f"j.id {AMONG} and ")
        return [self._templates.fill("project_settle", tokens), *([counts] if counts else [])]

    def beating(self) -> str | None:
        """None: this table keeps no heartbeats."""
        forms = (self._resolved.columns.get(meaning) for meaning in ("heartbeat_at", "claimed_at", "lease_until"))
        column = next((column for column in forms if column is not None), None)
        if column is None or not self._mapping.renew:
            return None
        end = f", '{self._templates.seconds}'" if "lease_until" in self._resolved else ""
        beating = f"{quoted(column.name)} = strftime('{KEPT}', :now{end})"
        tokens = self._job_tokens("j") | {"beating": beating, "j_foreign": self._templates.foreign("j.source_id")}
        return self._templates.fill("source_beat", tokens)

    def _temp(self, name: str, tokens: Tokens) -> str:
        trigger = temp_name(self._templates.prefix, name, self._mapping.name)
        return self._templates.fill(name, tokens | {"name": quoted(trigger)})

    def _job_tokens(self, job: str, *, since: bool = True) -> Tokens:
        """`since`: the job as it was is known as `old`."""
        status = f"{self._templates.table}.{self._resolved['status']}"
        counts = self._counts(job, "", "")
        return {
            "said": said_by(self._mapping, f"r.{self._resolved['status']}"),
            "job_foreign": self._templates.foreign("new.source_id"),
            "row_said": said_by(self._mapping, status),
            "row_agrees": self._templates.agrees(status, f"{job}.state"),
            "row_was": self._templates.agrees(status, "old.state"),
            "row_taken": (
                "(old.state = 'running' and "
                + self._templates.taken(self._templates.table, said_by(self._mapping, status), "old", "old.source_id")
                + ")"
            ),
            "projection": ", ".join(self._projection(job, since=since)),
            # A foreign holder counts for itself.
            "second_table": (
                f"{counts} and {self._templates.held('old', 'old.source_id')};"
                if counts and self._resolved.counts_table is not None
                else ""
            ),
            "counts": f"{counts};",
            "misfits": "\n".join(self._misfits()),
            "waits": ", ".join(m for m in ("run_at", "priority") if m in self._resolved),
            "waiting": ", ".join(f"{column} = {value}" for column, value in self._waiting(job).items()),
            "waits_differ": "("
            + " or ".join(f"{column} is not {value}" for column, value in self._waiting(job).items())
            + ")",
        }

    @property
    def _job_waits_changed(self) -> str:
        names = [m for m in ("run_at", "priority") if m in self._resolved]
        return "(" + " or ".join(f"new.{name} is not old.{name}" for name in names) + ")" if names else "0"

    def _waiting(self, job: str) -> dict[str, str]:
        return {self._resolved[m]: f"{job}.{m}" for m in ("run_at", "priority") if m in self._resolved}

    def _projection(self, job: str, *, since: bool) -> Iterable[str]:
        running = f"{job}.state = 'running'"
        finished = f"{job}.state in ('succeeded', 'failed', 'cancelled')"
        values: dict[str, Callable[[str], str]] = {
            "status": lambda is_: word_of(self._mapping, f"{job}.state"),
            "worker": lambda is_: f"case when {running} then {job}.worker end",
            "fence": lambda is_: f"case when {running} then {job}.fence end",
            "started_at": lambda is_: f"case when {running} then {job}.started_at else {is_} end",
            "heartbeat_at": lambda is_: f"case when {running} then {job}.started_at else {is_} end",
            "claimed_at": lambda is_: (
                f"case {job}.state when 'running' then {job}.started_at when 'queued' then null else {is_} end"
            ),
            "lease_until": lambda is_: (
                f"case when {running} then strftime('{KEPT}', {job}.started_at, '{self._templates.seconds}') end"
            ),
            "attempts": lambda is_: self._counted(job),
            "error_code": lambda is_: self._error(job, "error_code", is_),
            "error_message": lambda is_: self._error(job, "error_message", is_),
            "finished_at": lambda is_: (
                f"case when {finished} then {job}.finished_at when {job}.state <> 'queued' then {is_} end"
            ),
            "version": lambda is_: f"coalesce({is_}, 0) + 1",
            "updated_at": lambda is_: f"strftime('{KEPT}', 'now')",
            "run_at": lambda is_: (
                f"case when {job}.state = 'queued'"
                f"{f' and {job}.run_at is not old.run_at' if since else ''} then {job}.run_at else {is_} end"
            ),
            "pending": lambda is_: self._pending(job, is_),
            "done": lambda is_: f"coalesce({job}.done, {is_})",
            "total": lambda is_: f"coalesce({job}.total, {is_})",
        }
        for meaning, value in values.items():
            if meaning in self._resolved:
                name = self._resolved[meaning]
                yield f"{name} = {value(f'{self._templates.table}.{name}')}"
        for column, field in self._results:
            is_ = f"{self._templates.table}.{quoted(column.name)}"
            yield (
                f"{quoted(column.name)} = case when {job}.state = 'succeeded' "
                f"then {result_of(column, field, f'{job}.result')} else {is_} end"
            )

    def _counted(self, job: str) -> str:
        uncounted = {
            "at_claim": (),
            "at_failure": ("running", "succeeded"),
            "at_recovery": ("running", "succeeded", "failed"),
        }[self._mapping.counting]
        if not uncounted:
            return f"{job}.attempt"
        return f"max(0, {job}.attempt - ({job}.state in {words_in(uncounted)}))"

    def _error(self, job: str, column: str, is_: str) -> str:
        return f"case {job}.state when 'succeeded' then null when 'running' then {is_} else {job}.{column} end"

    def _pending(self, job: str, is_: str) -> str:
        """What others counted stands until one of ours has counted."""
        finished = words_in([state for state in State if state not in UNFINISHED])
        return f"case when {job}.state in {finished} then 0 else coalesce({job}.pending, {is_}, 0) end"

    def _counts(self, job: str, from_: str, which: str) -> str:
        """The statement that writes what checkpoints count, to the table itself or to the second one."""
        counts = self._mapping.counts
        if counts is None:
            return ""
        table = (
            self._templates.table if self._resolved.counts_table is None else quoted(self._resolved.counts_table.name)
        )
        id = self._templates.id if counts.id is None else quoted(counts.id)
        values = {name: self._pending(job, f"{table}.{quoted(name)}") for name in (counts.pending,) if name is not None}
        values |= {
            name: f"coalesce({job}.{meaning}, {table}.{quoted(name)})"
            for meaning, name in (("done", counts.done), ("total", counts.total))
            if name is not None
        }
        setting = ", ".join(f"{quoted(column)} = {value}" for column, value in values.items())
        return f"update {table} set {setting} {from_} where {which}{table}.{id} = {job}.source_id"  # noqa: S608

    @property
    def _results(self) -> list[tuple[TableColumn, str]]:
        found = [(self._resolved.table.column(name), field) for name, field in self._mapping.results.items()]
        return [(column, field) for column, field in found if column is not None]

    def _misfits(self) -> Iterable[str]:
        """SQLite would store anything."""
        succeeds = "new.state = 'succeeded' and old.state = 'running'"
        for column, field in self._results:
            part = "the result" if field == WHOLE else f"the result's {field!r}"
            message = f"RESULT_MISFIT {part} doesn't fit the column {column.name!r} ({column.type or 'untyped'})"
            words = misfits(column, "new.result", path_of(field))
            yield f"select raise(abort, {literal(message)}) where {succeeds} and {words};"


def temp_name(prefix: str, template: str, source_name: str) -> str:
    return f"{prefix}source_{template}:{source_name}"


def owed_triggers(name: str, prefix: str, lease: float) -> list[str]:
    """The TEMP triggers for a table that is left alone, or can't be worked: they know nothing of it but its name."""
    tokens = {
        "source": literal(name),
        "job_foreign": foreign(name, "new.source_id"),
        "lease_seconds": literal(f"+{lease:f} seconds"),
    }
    return [
        filled(template, tokens | {"name": quoted(temp_name(prefix, template, name))}, prefix)
        for template in ("project_owed", "project_not_rescued")
    ]
