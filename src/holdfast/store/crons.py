"""The part of a Store that keeps crons: one row each, and whoever moves it on to the next tick enqueues the job, in the
same transaction. So there is one job a tick, however many workers try, and whichever of them die."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.model.cron import CronRecord, Step, correlation_of, cron_tag
from holdfast.model.job import NewJob
from holdfast.store.columns import Row, parameters
from holdfast.store.reads import Reading

if TYPE_CHECKING:
    from holdfast.store.base import Transaction


class KeepsCrons(Reading):
    if TYPE_CHECKING:  # what the rest of a Store brings

        @abstractmethod
        def transaction(self) -> AbstractContextManager[Transaction]: ...
        @abstractmethod
        def hint(self, queue: str) -> None: ...

    def declare_cron(self, cron: CronRecord) -> None:
        """Keep what a worker's code says of a cron. Its next tick changes only if its schedule does."""
        with self.transaction() as tx:
            tx.rows(
                "declare_cron", name=cron.name, expression=cron.expression, timezone=cron.timezone,
                catch_up=cron.catch_up, queue=cron.queue, priority=cron.priority, max_attempts=cron.max_attempts,
                tags=list(cron.tags), next_at=self.codec.instant(cron.next_at),
            )  # fmt: skip

    def rename_cron(self, name: str, aliases: Iterable[str]) -> None:
        """The cron goes by this name from now on, and its pause: under both, each tick would have two jobs."""
        with self.transaction() as tx:
            for alias in aliases:
                tx.rows("rename_cron", name=name, alias=alias)
                tx.rows("rename_pause", name=name, alias=alias)
                tx.rows("drop_cron", name=alias)
                tx.rows("drop_pause", kind="cron", name=alias)

    def fire(self, cron: CronRecord, step: Step) -> str | None:
        """Take a tick and enqueue its job, both or neither; None: another took it, or there was none to take."""
        with self.transaction() as tx:
            taken = tx.rows(
                "advance_cron", name=cron.name, expression=cron.expression, timezone=cron.timezone,
                due=self.codec.instant(cron.next_at), tick=self.codec.instant(step.tick),
                next_at=self.codec.instant(step.next_at),
            )  # fmt: skip
            if not taken or step.tick is None:
                return None
            id = self._enqueue_cron(tx, cron.name, taken[0], step.tick)
        self.hint(taken[0]["queue"])
        return id

    def run_cron(self, name: str) -> str | None:
        """Enqueue a job of this cron now, apart from its schedule. None: there is no such cron."""
        with self.transaction() as tx:
            found = tx.rows("cron", name=name)
            if not found:
                return None
            id = self._enqueue_cron(tx, name, found[0], None)
        self.hint(found[0]["queue"])
        return id

    def _enqueue_cron(self, tx: Transaction, name: str, cron: Row, tick: datetime | None) -> str:
        job = NewJob(
            task=name, args=b"{}", queue=cron["queue"], priority=cron["priority"], max_attempts=cron["max_attempts"],
            tags=self.codec.words(cron["tags"]), run_at=tick,
            correlation_id=cron_tag(name) if tick is None else correlation_of(name, tick),
        )  # fmt: skip
        [made] = tx.rows("enqueue", **parameters(job, self.codec))
        return str(made["id"])

    def crons(self, *, with_workers: bool = False) -> list[CronRecord]:
        """Every cron; if asked for, with how many workers that are up declare it."""
        rows = self.read("crons")
        declared: Counter[str] = Counter()
        if rows and with_workers:
            now = self.now()
            declared.update(name for worker in self.workers() if worker.alive(now) for name in worker.crons)
        moments = ("next_at", "last_at", "paused_at", "paused_until", "now")
        return [
            CronRecord(
                **{
                    **row,
                    **{name: self.codec.moment(row[name]) for name in moments},
                    "tags": self.codec.words(row["tags"]),
                    "workers": declared[row["name"]],
                }
            )
            for row in rows
        ]
