"""The row decides: what makes the jobs of an adopted table follow their rows.

The triggers on the user's table are run by connections that know nothing of us: they need SQLite's JSON functions, and
nothing else. A value they can't use is passed over, since an error would fail the user's own statement."""

from __future__ import annotations

from functools import cached_property

from holdfast.model.table import TableColumn
from holdfast.store.adopted import literal, quoted, said_by
from holdfast.store.sqlite.adopted_templates import AMONG, Templates, Tokens
from holdfast.store.sqlite.adopted_values import KEPT, NOW, instant_of

FOLLOW = (
    "follow_create", "follow_request", "follow_withdraw", "follow_overrule", "follow_lease", "follow_queued",
    "follow_running", "follow_foreign_lease", "follow_paused", "follow_finished",
)  # fmt: skip
BASE64 = "holdfast_base64"  # a function of our own connections
CLAIM = {"worker": "worker", "fence": "fence", "started_at": "started_at", "claimed_at": "started_at"}
ATTEMPTS = 3  # where the column for it is null
GONE = ("gone_request", "gone_lease", "gone_cancel")


class Following:
    def __init__(self, templates: Templates) -> None:
        self._templates = templates
        self._resolved = templates.resolved
        self._mapping = templates.mapping

    @cached_property
    def in_file(self) -> dict[str, str]:
        """The triggers on the user's table, by name."""
        made = {what: f"trigger_{what}" for what in ("insert", "replace", "update", "delete", "rekey")}
        if self._waits:
            made["wait"] = "trigger_wait"
        if self._lease_column is not None:
            made["heartbeat"] = "trigger_heartbeat"
        new = self._row_tokens("new", NOW)
        old = self._row_tokens("old", NOW)
        bodies = {
            "create": self._templates.fill("follow_create", new) + ";",
            "follow": "".join(self._templates.fill(name, new) + ";\n" for name in FOLLOW),
            "counted": self._templates.fill("follow_counted", new) + ";" if "attempts" in self._resolved else "",
            "gone": "".join(self._templates.fill(name, old) + ";\n" for name in GONE),
        }
        return {
            self._trigger_name(what): self._templates.fill(
                template, new | bodies | {"name": quoted(self._trigger_name(what))}
            )
            for what, template in made.items()
        }

    def _trigger_name(self, what: str) -> str:
        return f"{self._templates.prefix}{self._mapping.name}_{what}"

    def statements(self) -> list[str]:
        """Statements by which the jobs of the rows :ids follow them."""
        return [self._templates.fill(name, self._row_tokens("r", ":now")) for name in FOLLOW]

    def gone(self) -> list[str]:
        """The same for jobs, by the ids of rows that are gone."""
        tokens = self._row_tokens("old", ":now") | {
            "id": "source_id",
            "these": f"source_id {AMONG}",
            "is": f"source = {literal(self._mapping.name)} and source_id {AMONG}",
            "foreign": self._templates.foreign("source_id"),
        }
        tokens["held"] = self._templates.held(self._templates.jobs, "source_id")
        return [self._templates.fill(name, tokens) for name in GONE]

    def page(self, *, first: bool) -> str:
        tokens = self._row_tokens("r", ":now")
        agrees = self._templates.agrees(f"r.{self._resolved['status']}", "j.state")
        taken = self._templates.taken("r", tokens["said"], "j", tokens["id"])
        held = self._templates.held("j", tokens["id"])
        agrees = f"({agrees} and not ({held} and {taken}))"
        beyond = f"r.{self._templates.id} " + ("is not null" if first else "> :after")
        return self._templates.fill("source_page", tokens | {"agrees_j": agrees, "held_j": held, "beyond": beyond})

    def orphans(self) -> str:
        held = self._templates.held("j", "j.source_id")
        return self._templates.fill("source_orphans", self._row_tokens("r", ":now") | {"held_j": held})

    @cached_property
    def unready(self) -> str:
        return self._templates.fill("source_unready", self._row_tokens("r", ":now"))

    @cached_property
    def latest_args(self) -> str:
        return self._templates.fill("source_args", {"args": self._templates.args("r", f"{BASE64}({{}})")})

    def taken(self) -> str:
        """Of the jobs :ids, those whose rows others work by now."""
        said = said_by(self._mapping, self._cell("r", "status"))
        return self._templates.fill("source_taken", {"taken": self._templates.taken("r", said, "j", "j.source_id")})

    def missing(self) -> str:
        return self._templates.fill("source_missing", {})

    def hear(self) -> str | None:
        """None: it can't be seen whether somebody else is alive."""
        if self._lease_column is None:
            return None
        return self._templates.fill("source_hear", self._row_tokens("r", ":now"))

    def _row_tokens(self, row: str, clock: str) -> Tokens:
        """`row`: `new` or `old` in a trigger; `r` for rows by their ids."""
        mapping, columns = self._mapping, self._resolved.columns
        status, id = self._cell(row, "status"), f"cast({self._cell(row, 'id')} as text)"
        # A primary key may be null here. Such a row has no name, so it is no job.
        said = f"(case when {self._cell(row, 'id')} is not null then {said_by(mapping, status)} end)"
        by_ids = row == "r"
        jobs = self._templates.jobs
        these = f"{self._cell(row, 'id')} {AMONG}" if by_ids else "1"
        taken = self._templates.taken(row, said, jobs, id)
        held = f"({self._templates.held(jobs, id)} and not {taken})"
        agrees = self._templates.agrees(status, f"{jobs}.state")
        maximum = self._maximum(row)
        attempts = self._attempts(row, maximum)
        finished_before = f"{jobs}.state in ('succeeded', 'failed', 'cancelled')"
        why = f"'its row says ' || quote({status})"
        own = {
            meaning: f"nullif(cast({self._cell(row, meaning)} as text), '')" if meaning in columns else "null"
            for meaning in ("error_code", "error_message", "key")
        }
        code = f"case {said} when 'failed' then 'FOREIGN' else 'CANCELLED' end"
        return {
            "from": f"from {self._templates.table} as r" if by_ids else "",
            "and_from": f", {self._templates.table} as r" if by_ids else "",
            "these": these,
            "these_rows": f"{self._templates.table}.{self._templates.id} {AMONG}"
            if by_ids
            else f"{self._templates.table}.{self._templates.id} = {self._cell(row, 'id')}",
            "id": id,
            "is": f"{jobs}.source = {literal(self._mapping.name)} and {jobs}.source_id = {id} and {these}",
            "said": said,
            "why": why,
            "clock": clock,
            "foreign": self._templates.foreign(id),
            "held": held,
            "in_step": f"({agrees} and not ({jobs}.state = 'running' and {taken}))",
            "free": f"(not {jobs}.owed and not {held})",
            "agrees": agrees,
            "args": self._templates.args(row, "null"),
            "key": own["key"],
            "maximum": maximum,
            "attempts": attempts or "0",
            "attempts_again": attempts
            or f"case {jobs}.state when 'paused' then min({jobs}.attempt, {maximum} - 1) else 0 end",
            "attempts_begun": self._attempts_begun(row, maximum)
            or f"min(case when {finished_before} then 0 else {jobs}.attempt end + 1, {maximum})",
            "life": f"{jobs}.life + ({finished_before})",
            "priority": self._priority(row),
            "due": f"coalesce({self._instant(row, 'run_at')}, {clock})",
            "first_due": f"coalesce({self._instant(row, 'run_at')}, "
            f"min({self._instant(row, 'created_at')}, {clock}), {clock})",
            "begun": f"coalesce({self._instant(row, 'started_at')}, {self._instant(row, 'claimed_at')}, {clock})",
            "finished": f"coalesce({self._instant(row, 'finished_at')}, {clock})",
            "lease_end": self._lease_end(row, clock),
            "error_code": f"case when {said} is null then 'CANCELLED' else coalesce({own['error_code']}, {code}) end",
            "error_message": f"case when {said} is null then {why} else coalesce({own['error_message']}, {why}) end",
            "waits": ", ".join(quoted(columns[meaning].name) for meaning in self._waits),
            "waits_changed": " or ".join(
                f"new.{self._resolved[m]} is not old.{self._resolved[m]}" for m in self._waits
            ),
            **self._changed_waits,
            "claim": self._claim,
            "claimed": ", ".join(self._resolved[m] for m in ("status", self._templates.holder) if m is not None),
            "lease_column": quoted(self._lease_column.name) if self._lease_column is not None else "",
        }

    @property
    def _claim(self) -> str:
        """The columns that say who holds a row, as its job has them."""
        id = f"cast({self._templates.table}.{self._templates.id} as text)"
        job = f"where j.source = {literal(self._mapping.name)} and j.source_id = {id}"
        return "".join(
            f", {self._resolved[meaning]} = (select j.{field} from {self._templates.jobs} j {job})"  # noqa: S608
            for meaning, field in CLAIM.items()
            if meaning in self._resolved
        )

    @property
    def _changed_waits(self) -> Tokens:
        """What a waiting job gets when others change its row. Our own writes come by here, too, and change nothing."""
        due, priority, maximum = (f"{self._templates.jobs}.{name}" for name in ("run_at", "priority", "max_attempts"))
        if "run_at" in self._resolved:
            column = self._resolved["run_at"]
            due = (
                f"case when new.{column} is old.{column} or new.{column} is {due} then {due} "
                f"else coalesce({self._instant('new', 'run_at')}, {NOW}) end"
            )
        if "priority" in self._resolved:
            column = self._resolved["priority"]
            priority = f"case when new.{column} is old.{column} then {priority} else {self._priority('new')} end"
        if "max_attempts" in self._resolved:
            maximum = self._maximum("new")
        return {"new_due": due, "new_priority": priority, "new_maximum": maximum}

    @property
    def _waits(self) -> list[str]:
        return [meaning for meaning in ("run_at", "priority", "max_attempts") if meaning in self._resolved]

    @property
    def _lease_column(self) -> TableColumn | None:
        """The one that says when the lease of a foreign holder ends."""
        columns = self._resolved.columns
        forms = (columns.get(meaning) for meaning in ("heartbeat_at", "claimed_at", "lease_until", "started_at"))
        return next((column for column in forms if column is not None), None)

    def _lease_end(self, row: str, clock: str) -> str:
        otherwise = f"strftime('{KEPT}', {clock}, '{self._templates.seconds}')"
        column = self._lease_column
        if column is None:
            return otherwise
        later = "" if "lease_until" in self._resolved else f", '{self._templates.seconds}'"
        return f"coalesce({instant_of(f'{row}.{quoted(column.name)}', later)}, {otherwise})"

    def _instant(self, row: str, meaning: str) -> str:
        return instant_of(self._cell(row, meaning)) if meaning in self._resolved else "null"

    def _maximum(self, row: str) -> str:
        if isinstance(self._mapping.max_attempts, int):
            return str(self._mapping.max_attempts)
        return f"max(1, coalesce(cast({self._cell(row, 'max_attempts')} as integer), {ATTEMPTS}))"

    def _attempts(self, row: str, maximum: str) -> str | None:
        if "attempts" not in self._resolved:
            return None
        count = f"cast({self._cell(row, 'attempts')} as integer)"
        return f"case when {count} > 0 and {count} < {maximum} then {count} else 0 end"

    def _attempts_begun(self, row: str, maximum: str) -> str | None:
        if "attempts" not in self._resolved:
            return None
        count = f"coalesce(cast({self._cell(row, 'attempts')} as integer), 0)"
        this = "" if self._mapping.counting == "at_claim" else " + 1"
        return f"max(1, min({count}{this}, {maximum}))"

    def _priority(self, row: str) -> str:
        if isinstance(self._mapping.priority, int):
            return str(max(-100, min(100, self._mapping.priority)))
        return f"max(-100, min(100, coalesce(cast({self._cell(row, 'priority')} as integer), 0)))"

    def _cell(self, row: str, meaning: str) -> str:
        return f"{row}.{self._resolved[meaning]}"
