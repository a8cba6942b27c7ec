"""What people do with jobs, queues, tasks and crons: look, steer, ask why. The part of `Holdfast` for whoever operates
it. What few of them need is imported when they do: `import holdfast` is to be quick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast, overload

from holdfast.errors import BadArguments, BadSettings, UnknownTask
from holdfast.job import Job
from holdfast.model.cron import CronRecord, goes_on_at
from holdfast.model.filter import BadFilter, Filter, parse
from holdfast.model.job import Changed, Page, Pause, QueueSummary, summed
from holdfast.model.lifecycle import State
from holdfast.model.pause_filter import meant, text
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.tasks.options import Seconds, aware, by_of, looked_for, name_of, names_of, priority_of, reason_of, seconds
from holdfast.tasks.task import Task

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.doctor import Finding
    from holdfast.model.stack import Stack
    from holdfast.model.why import QueueWhy, Reason

MOST = 1_000_000  # jobs in a list
STACK_TIMEOUT = 10.0  # seconds; a worker that can't be notified hears of it with its next heartbeat


class People:
    settings: Settings
    tasks: dict[str, Task[..., Any]]

    if TYPE_CHECKING:

        @property
        def store(self) -> Store: ...

    def job(self, id: str) -> Job[Any]:
        """The job with this id."""
        return Job(cast("Holdfast", self), str(id), self.store.get(str(id)).task, created=False)

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
        """The jobs a filter means (`"state:failed queue:mail since:1h"`), newest first; `.next` is where to go on."""
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST:
            raise BadArguments(f"jobs: limit must be a whole number of 1 to {MOST:,}, not {limit!r}")
        if not isinstance(filter, str):
            raise BadArguments(f"jobs: a filter is a text, as in 'state:failed queue:mail', not {filter!r:.80}")
        for name, value in {"queue": queue, "task": task, "before": before}.items():
            if value is not None:
                looked_for(f"jobs: {name}", value)
        return self.store.jobs(parse(filter), state=state, queue=queue, task=task, before=before, limit=limit)

    def queues(self) -> list[QueueSummary]:
        """What waits, runs and failed in each queue, and how much work its jobs have pending, by name. Costs the same
        however many jobs there are: no more than 10,000 of a kind are counted."""
        return summed(self.store.depths())

    def retry(self, filter: str) -> Changed:
        """Another life for every failed or cancelled job the filter means."""
        return self.store.bulk("retry", _some(filter))

    def cancel(self, filter: str, reason: str | None = None, *, by: str | None = None) -> Changed:
        """End every job the filter means that has not finished; failed ones are dismissed, running ones asked."""
        return self.store.bulk("cancel", _some(filter), reason=reason_of("cancel", reason), by=by_of("cancel", by))

    def delete(self, filter: str) -> Changed:
        """Forget every finished job the filter means, with its history."""
        return self.store.bulk("delete", _some(filter), unfinished=False)

    def change(
        self,
        id: str,
        *,
        priority: int | None = None,
        delay: Seconds | None = None,
        run_at: datetime | None = None,
        tags: Sequence[str] | None = None,
    ) -> State:
        """Change priority, due time or tags of a queued job."""
        return self.store.change(id, **changes(priority=priority, delay=delay, run_at=run_at, tags=tags))

    @overload
    def pause(self, filter: str, /, *, by: str | None = None, reason: str | None = None) -> Changed: ...
    @overload
    def pause(
        self, *, queue: str | None = None, task: str | None = None, cron: str | None = None,
        where: str | Mapping[str, Any] | None = None, by: str | None = None, reason: str | None = None,
        until: datetime | timedelta | None = None,
    ) -> None: ...  # fmt: skip

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
        """Pause a queue or a task: no new attempts start until `resume`, or until the time given. `where` narrows that
        to jobs with these arguments (`"args.customer:42"` or `{"customer": 42}`), or means them wherever they are:
        those that wait and those that come. Or a cron: its ticks are let go until then.

        Or the jobs there are that a filter means, `pause("tag:import")`: queued ones are paused, running ones asked to
        park."""
        if filter is not None:
            _alone(filter, queue, task, cron, where, until)
            return self.store.bulk("pause", _some(filter), reason=reason_of("pause", reason), by=by_of("pause", by))
        for kind, name in (("queue", queue), ("task", task), ("cron", cron)):
            if name is not None:
                name_of(f"the name of a {kind}", name)
        kind, name = _which(queue, task, cron, where)
        by = by_of("pause", by)
        reason = reason_of("pause", reason)
        if kind == "cron":
            self._cron(name)
        if isinstance(until, timedelta):
            self.store.add_pause(kind, name, by=by, reason=reason, delay=seconds("pause: until", until))
        else:
            until = aware("pause: until", until)
            if until is not None and until <= self.store.now():
                raise BadArguments(f"pause: until {until.isoformat()} is past: a pause needs an end that lies ahead")
            self.store.add_pause(kind, name, by=by, reason=reason, until=until)
        return None

    @overload
    def resume(self, filter: str, /) -> Changed: ...
    @overload
    def resume(
        self, *, queue: str | None = None, task: str | None = None, cron: str | None = None,
        where: str | Mapping[str, Any] | None = None,
    ) -> bool: ...  # fmt: skip

    def resume(
        self,
        filter: str | None = None,
        *,
        queue: str | None = None,
        task: str | None = None,
        cron: str | None = None,
        where: str | Mapping[str, Any] | None = None,
    ) -> Changed | bool:
        """End a pause, named as it was made: of a queue, a task, the jobs `where` means, or a cron, which goes on with
        its next tick. False: there was no such pause. Or of the paused jobs a filter means."""
        if filter is not None:
            _alone(filter, queue, task, cron, where)
            return self.store.bulk("resume", _some(filter))
        kind, name = _which(queue, task, cron, where)
        next_at = None
        if kind == "cron":
            next_at = goes_on_at(self._cron(name))
        return self.store.drop_pause(kind, name, next_at=next_at)

    def pauses(self) -> list[Pause]:
        """What is paused: queues, tasks, crons, and filters with the number of jobs they have set aside."""
        return self.store.pauses()

    def why(self, id: str) -> list[Reason]:
        """Why a job does not run, or what became of it: every reason that holds, in order."""
        from holdfast.store.why import why

        return why(self.store, str(id))

    def why_queue(self, queue: str) -> QueueWhy:
        """What the jobs of a queue wait for, counted by reason over a bounded window."""
        from holdfast.store.why import why_queue

        return why_queue(self.store, looked_for("the name of a queue", queue))

    def stack(self, id: str, *, timeout: Seconds = STACK_TIMEOUT) -> Stack:
        """Where the handler of a running job is right now, told by its worker: its calls, or its awaits, without the
        values of variables. Refused if the job does not run, WaitTimeout if nobody answers in time."""
        from holdfast.store.stack_waiting import ask_for_stack

        return ask_for_stack(self.store, str(id), seconds("stack: timeout", timeout))

    def doctor(self) -> list[Finding]:
        """What is wrong with the database, or soon will be; what is in order is told as well. Changes nothing."""
        from holdfast.doctor import examine

        return examine(self.settings)

    # -- crons ---------------------------------------------------------------------------------------------------------

    def crons(self) -> list[CronRecord]:
        """The crons this database knows, and those this application declares, by name."""
        from holdfast.tasks.manifest import cron_of, info_of

        known = {cron.name: cron for cron in self.store.crons(with_workers=True)}
        mine = [task for task in self.tasks.values() if task.schedule is not None and task.name not in known]
        now = self.store.now() if mine else None
        known |= {task.name: cron_of(info_of(task), now) for task in mine if now is not None}
        return [known[name] for name in sorted(known)]

    def run_cron(self, name: str) -> Job[Any]:
        """Enqueue a job of this cron now; its schedule goes on as it was."""
        self._cron(name)
        id = self.store.run_cron(name)
        if id is None:
            raise UnknownTask(f"the cron {name!r} is gone")
        return Job(cast("Holdfast", self), id, name, created=True)

    def _cron(self, name: str) -> CronRecord:
        """The cron of this name, as the database has it; one that only this application knows is made known to it."""
        known = {cron.name: cron for cron in self.crons()}
        if name not in known:
            there = ", ".join(known) or "none"
            raise UnknownTask(f"there is no cron {name!r} in {self.settings.shown_url}; there are: {there}")
        if name not in {cron.name for cron in self.store.crons()}:
            self.store.rename_cron(name, self.tasks[name].defaults.aliases)
            self.store.declare_cron(known[name])
            known = {cron.name: cron for cron in self.store.crons()}
        return known[name]


def changes(
    *,
    priority: int | None = None,
    delay: Seconds | None = None,
    run_at: datetime | None = None,
    tags: Sequence[str] | None = None,
) -> dict[str, Any]:
    """What is to change of a job, checked."""
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
    """What is paused: its kind and its name."""
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


def _some(text: str) -> Filter:
    if not isinstance(text, str):
        raise BadFilter(f"a filter is a text, as in 'state:failed' or 'id:42', not {text!r:.80}")
    filter = parse(text)
    if not filter:
        raise BadFilter("an empty filter means every job there is: say which, as in state:failed or id:42")
    return filter


def _alone(filter: str, *others: object) -> None:
    if any(other is not None for other in others):
        raise BadArguments(f"a filter ({filter!r}) means jobs: name a queue or a task apart from it")
