"""What operators do with jobs, queues, tasks and crons: list, retry, cancel, pause, ask why. What few of these need is
imported when they are called, to keep `import holdfast` quick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadArguments, BadSettings, UnknownTask
from holdfast.job import Job
from holdfast.model.cron import CronRecord, goes_on_at
from holdfast.model.filter import BadFilter, Filter, parse
from holdfast.model.job import Changed, ErrorGroup, Page, Pause, QueueSummary, summed
from holdfast.model.lifecycle import State
from holdfast.model.pause_filter import meant, text
from holdfast.store.base import Store
from holdfast.tasks.options import Seconds, aware, by_of, looked_for, name_of, names_of, priority_of, reason_of, seconds

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.doctor import Finding
    from holdfast.model.stack import Stack
    from holdfast.model.why import QueueWhy, Reason

MOST = 1_000_000  # jobs in one list
STACK_TIMEOUT = 10.0  # seconds; a worker that can't be notified learns of the request at its next heartbeat


class Operations:
    """The operator's verbs of one application. `Holdfast` offers each of them under the same name, and documents it."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app

    @property
    def store(self) -> Store:
        return self._app.store

    def job(self, id: str) -> Job[Any]:
        return Job(self._app, str(id), self.store.reads.get(str(id)).task, created=False)

    def jobs(
        self,
        filter: str = "",
        *,
        state: State | str | None = None,
        queue: str | None = None,
        task: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Page:
        _count("jobs: limit", limit)
        if not isinstance(filter, str):
            raise BadArguments(f"jobs: a filter is a text, as in 'state:failed queue:mail', not {filter!r:.80}")
        for name, value in {"queue": queue, "task": task, "before": before}.items():
            if value is not None:
                looked_for(f"jobs: {name}", value)
        return self.store.reads.jobs(parse(filter), state=state, queue=queue, task=task, before=before, limit=limit)

    def queues(self) -> list[QueueSummary]:
        return summed(self.store.reads.depths())

    def error_groups(self, filter: str = "state:failed", *, limit: int = 100) -> list[ErrorGroup]:
        limit = _count("error_groups: limit", limit)
        if not isinstance(filter, str):
            raise BadArguments(f"error_groups: a filter is a text, as in 'queue:mail since:1h', not {filter!r:.80}")
        return self.store.reads.error_groups(parse(filter), limit)

    def retry(self, filter: str, *, limit: int | None = None, spread: Seconds | None = None) -> Changed:
        which = _some(filter)
        if limit is None and spread is None:
            return self.store.operator.bulk("retry", which)
        return self.store.operator.retry_some(which, **share(limit, spread))

    def cancel(self, filter: str, reason: str | None = None, *, by: str | None = None) -> Changed:
        return self.store.operator.bulk(
            "cancel", _some(filter), reason=reason_of("cancel", reason), by=by_of("cancel", by)
        )

    def delete(self, filter: str) -> Changed:
        return self.store.operator.bulk("delete", _some(filter), unfinished=False)

    def change(
        self,
        id: str,
        *,
        priority: int | None = None,
        delay: Seconds | None = None,
        run_at: datetime | None = None,
        tags: Sequence[str] | None = None,
    ) -> State:
        return self.store.operator.change(id, **changes(priority=priority, delay=delay, run_at=run_at, tags=tags))

    def pause(
        self,
        filter: str | None = None,
        *,
        queue: str | None = None,
        task: str | None = None,
        cron: str | None = None,
        where: str | Mapping[str, Any] | None = None,
        by: str | None = None,
        reason: str | None = None,
        until: datetime | timedelta | None = None,
    ) -> Changed | None:
        if filter is not None:
            _alone(filter, queue, task, cron, where, until)
            return self.store.operator.bulk(
                "pause", _some(filter), reason=reason_of("pause", reason), by=by_of("pause", by)
            )
        for kind, name in (("queue", queue), ("task", task), ("cron", cron)):
            if name is not None:
                name_of(f"the name of a {kind}", name)
        kind, name = _which(queue, task, cron, where)
        by = by_of("pause", by)
        reason = reason_of("pause", reason)
        if kind == "cron":
            self._cron(name)
        if isinstance(until, timedelta):
            self.store.pauses.add(kind, name, by=by, reason=reason, delay=seconds("pause: until", until))
        else:
            until = aware("pause: until", until)
            if until is not None and until <= self.store.reads.now():
                raise BadArguments(f"pause: until {until.isoformat()} is past: a pause needs an end that lies ahead")
            self.store.pauses.add(kind, name, by=by, reason=reason, until=until)
        return None

    def resume(
        self,
        filter: str | None = None,
        *,
        queue: str | None = None,
        task: str | None = None,
        cron: str | None = None,
        where: str | Mapping[str, Any] | None = None,
    ) -> Changed | bool:
        if filter is not None:
            _alone(filter, queue, task, cron, where)
            return self.store.operator.bulk("resume", _some(filter))
        kind, name = _which(queue, task, cron, where)
        next_at = None
        if kind == "cron":
            next_at = goes_on_at(self._cron(name))
        return self.store.pauses.drop(kind, name, next_at=next_at)

    def pauses(self) -> list[Pause]:
        return self.store.pauses.all()

    def why(self, id: str) -> list[Reason]:
        from holdfast.store.why import why

        return why(self.store, str(id))

    def why_queue(self, queue: str) -> QueueWhy:
        from holdfast.store.why import why_queue

        return why_queue(self.store, looked_for("the name of a queue", queue))

    def stack(self, id: str, *, timeout: Seconds = STACK_TIMEOUT) -> Stack:
        from holdfast.store.stack_requests import ask_for_stack

        return ask_for_stack(self.store, str(id), seconds("stack: timeout", timeout))

    def doctor(self) -> list[Finding]:
        from holdfast.doctor import examine

        self._app.check_url()
        return examine(self._app.settings)

    # -- crons ---------------------------------------------------------------------------------------------------------

    def crons(self) -> list[CronRecord]:
        from holdfast.tasks.manifest import cron_of, info_of

        known = {cron.name: cron for cron in self.store.crons.all(with_workers=True)}
        mine = [task for task in self._app.tasks.values() if task.schedule is not None and task.name not in known]
        now = self.store.reads.now() if mine else None
        known |= {task.name: cron_of(info_of(task), now) for task in mine if now is not None}
        return [known[name] for name in sorted(known)]

    def run_cron(self, name: str) -> Job[Any]:
        self._cron(name)
        id = self.store.crons.run(name)
        if id is None:
            raise UnknownTask(f"the cron {name!r} is gone")
        return Job(self._app, id, name, created=True)

    def _cron(self, name: str) -> CronRecord:
        """The cron of this name, as the database has it. One that only this application declares is stored first."""
        known = {cron.name: cron for cron in self.crons()}
        if name not in known:
            there = ", ".join(known) or "none"
            raise UnknownTask(f"there is no cron {name!r} in {self._app.settings.shown_url}; there are: {there}")
        if name not in {cron.name for cron in self.store.crons.all()}:
            self.store.crons.rename(name, self._app.tasks[name].defaults.aliases)
            self.store.crons.declare(known[name])
            known = {cron.name: cron for cron in self.store.crons.all()}
        return known[name]


def share(limit: int | None, spread: Seconds | None) -> dict[str, Any]:
    """How many jobs to retry, and over which time, checked."""
    return {
        "limit": None if limit is None else _count("retry: limit", limit),
        "spread": 0.0 if spread is None else seconds("retry: spread", spread),
    }


def changes(
    *,
    priority: int | None = None,
    delay: Seconds | None = None,
    run_at: datetime | None = None,
    tags: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The changes to a job, checked."""
    if delay is not None and run_at is not None:
        raise BadArguments("change: delay and run_at exclude each other")
    return {
        "priority": None if priority is None else priority_of("change", priority),
        "delay": None if delay is None else seconds("change: delay", delay),
        "run_at": aware("change: run_at", run_at),
        "tags": None if tags is None else names_of("change: tags", tags),
    }


def _which(
    queue: str | None, task: str | None, cron: str | None, where: str | Mapping[str, Any] | None
) -> tuple[str, str]:
    """What to pause: its kind and its name."""
    named = {
        kind: looked_for(f"the name of a {kind}", name)
        for kind, name in (("queue", queue), ("task", task), ("cron", cron))
        if name is not None
    }
    if (cron is not None and (where is not None or len(named) > 1)) or (not named and where is None):
        raise BadSettings("name a queue, a task, jobs by their arguments (where=…), or a cron")
    if where is not None or len(named) > 1:
        filter = meant(where or "", queue=named.get("queue"), task=named.get("task"))
        one = [("queue", name) for name in filter.queues] + [("task", name) for name in filter.tasks]
        if filter.args or len(one) > 1:
            return "filter", text(filter)
        named = dict(one)
    [(kind, name)] = named.items()
    return kind, name


def _count(what: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST:
        raise BadArguments(f"{what} must be a whole number of 1 to {MOST:,}, not {number!r}")
    return number


def _some(text: str) -> Filter:
    if not isinstance(text, str):
        raise BadFilter(f"a filter is a text, as in 'state:failed' or 'id:42', not {text!r:.80}")
    filter = parse(text)
    if not filter:
        raise BadFilter("an empty filter would match every job: say which, as in state:failed or id:42")
    return filter


def _alone(filter: str, *others: object) -> None:
    if any(other is not None for other in others):
        raise BadArguments(f"a filter ({filter!r}) selects jobs: pause a queue, a task or a cron in a call of its own")
