"""Who is measured: how each is installed, and where it keeps what is not done yet."""

from __future__ import annotations

from dataclasses import dataclass

POSTGRES, SQLITE = "postgres", "sqlite"
OURS = "holdfast"


@dataclass(frozen=True)
class Contender:
    name: str
    title: str
    engine: str
    adapter: str
    """The file beside this one that speaks its language."""
    pending: str
    """SQL: a row if a job waits or runs."""
    packages: tuple[str, ...] = ()
    """What goes into its throw-away environment, from PyPI or (an .mjs adapter) npm. None: it runs in ours."""
    share: float = 1.0
    """Of the jobs of a drain: a slow one gets fewer, its rate is the same."""

    def jobs(self, full: int, at_least: float = 0.0) -> int:
        return max(100, int(full * max(self.share, at_least)))

    @property
    def ours(self) -> bool:
        return not self.packages


CONTENDERS = (
    Contender(
        OURS, "Holdfast", POSTGRES, "holdfast_peer.py",
        "select from holdfast.jobs where state in ('queued', 'running') limit 1",
    ),
    Contender(
        "pgqueuer", "PgQueuer", POSTGRES, "pgqueuer_peer.py", "select from pgqueuer limit 1",
        packages=("pgqueuer[asyncpg]==1.6.0", "uvloop"),
    ),
    Contender(
        "graphile", "Graphile Worker", POSTGRES, "graphile_peer.mjs",
        "select from graphile_worker._private_jobs limit 1",
        packages=("graphile-worker@0.18.0", "node@22"),
    ),
    Contender(
        "procrastinate", "Procrastinate", POSTGRES, "procrastinate_peer.py",
        "select from procrastinate_jobs where status in ('todo', 'doing') limit 1",
        packages=("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.8"), share=0.05,
    ),
    Contender(
        OURS, "Holdfast", SQLITE, "holdfast_peer.py",
        "select 1 from holdfast_jobs where state in ('queued', 'running') limit 1",
    ),
    Contender(
        "huey", "Huey", SQLITE, "huey_peer.py", "select 1 from task limit 1",
        packages=("huey==3.5.4",), share=0.25,
    ),
)  # fmt: skip
