"""What the four systems have in common: which questions can be put to each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

from tests.adopt.systems.database import Database

MAX_ATTEMPTS = 3
NOW = "{now}"
LONG_AGO = "{ago}"  # an hour


class Taken(NamedTuple):
    """A row that an old worker has claimed."""

    id: str
    subject: str  # what to work on


class System(ABC):
    """One old system. `lease`: the seconds after which it takes a claim for dead."""

    table: ClassVar[str]
    preset: ClassVar[str]  # the name of its settings
    subject: ClassVar[str]  # the column that says what to work on
    waiting: ClassVar[str]
    running: ClassVar[str]
    done: ClassVar[str]
    failed: ClassVar[str] = "failed"
    counting: ClassVar[str | None] = None  # how its column of attempts counts
    attempts: ClassVar[str] = "null"  # that column
    keeps_attempts: ClassVar[bool] = False  # when a failed row is reset
    results: ClassVar[dict[str, str]] = {}  # over the preset's: what the table keeps of a result in its own columns
    ddl: ClassVar[str]

    @property
    def words(self) -> set[str]:
        return {self.waiting, self.running, self.done, self.failed}

    def __init__(self, db: Database, lease: float) -> None:
        self.db = db
        self.lease = lease

    def another(self) -> System:
        """The same, on a connection of its own."""
        return type(self)(self.db.another(), self.lease)

    def create(self) -> None:
        self.db.script(self.ddl)

    # -- rows ----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def leave_rows(self) -> None:
        """Rows in every state, as years of work have left them."""

    def leave(self, **columns: Any) -> str:
        """A row with these values; returns its id."""
        values = [value if value in (NOW, LONG_AGO) else f":{name}" for name, value in columns.items()]
        text = f"insert into {self.table} ({', '.join(columns)}) values ({', '.join(values)}) returning id"
        return str(self.db.value(text, **columns, seconds=3600))

    @abstractmethod
    def submit(self, subject: str) -> str:
        """What the user interface does when somebody wants something; returns the id."""

    def delete(self, id: str) -> int:
        """Only one that waits: the interface offers it for nothing else."""
        return self.db.changed(f"delete from {self.table} where id = :id and status = :word", id=id, word=self.waiting)

    def reset(self, id: str) -> int:
        """Somebody wants a failed one tried again."""
        return self.db.changed(
            f"update {self.table} set status = :word where id = :id and status = 'failed'", id=id, word=self.waiting
        )

    # -- the old worker ------------------------------------------------------------------------------------------------

    @abstractmethod
    def claim(self, worker: str) -> Taken | None: ...

    def heartbeat(self, id: str, worker: str) -> None:  # noqa: B027 - two of the systems have none
        """The claim is still alive."""

    @abstractmethod
    def finish(self, id: str, worker: str) -> int: ...

    @abstractmethod
    def fail(self, id: str, worker: str) -> int:
        """What its worker does when the work fails: its own rule decides whether it is tried again."""

    def let_go(self, id: str, worker: str) -> None:  # noqa: B027 - three of the systems can't be told to stop
        """Somebody has paused or cancelled it meanwhile."""

    def watchdog(self) -> int:
        """Takes back what dead workers hold; returns how many."""
        return 0

    # -- readers -------------------------------------------------------------------------------------------------------

    def status_counts(self) -> dict[str, int]:
        """The status page."""
        found = self.db.rows(f"select status, count(*) as n from {self.table} group by status")
        return {row["status"]: row["n"] for row in found}

    @abstractmethod
    def stale(self) -> list[str]:
        """The query that an operator has at hand for claims that are dead by the system's own rule."""

    @abstractmethod
    def wrong(self) -> list[dict[str, Any]]:
        """Rows that contradict themselves, which no reader may ever see: running without a worker or a time,
        finished without a result, waiting with somebody's claim on it."""
