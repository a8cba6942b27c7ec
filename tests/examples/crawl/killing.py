"""A tree is crawled on a site with latency and faults, while the runner, the worker or both are killed at random
moments. What comes of it is compared with an offline walk, and with the log of the site.

    python -m tests.examples.crawl.killing /usr/share/doc/python3.11/html --kills 20"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from examples.crawl.database import Database, connect
from tests.examples.claim_check.application import REPOSITORY
from tests.examples.crawl.site import Asked, Site, faults
from tests.examples.crawl.walk import reachable

VICTIMS = ("runner", "worker", "both")
LONGEST = 900.0  # seconds


@dataclass(frozen=True)
class Verdict:
    seconds: float
    kills: Counter[str]
    pages: int
    requests: int
    most_asked: int  # times that one address was
    failures: int  # requests that were made to fail
    shortest_gap: float  # seconds between two requests
    missed: list[str]
    wrong: list[str]  # stored, but not what the walk found
    status: str

    @property
    def good(self) -> bool:
        return self.status == "completed" and not self.missed and not self.wrong


def runner_of(worker: int) -> int | None:
    """The process that crawls for this one."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError):  # it may end meanwhile
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == worker and b"holdfast.isolated_main" in (entry / "cmdline").read_bytes():
                    return int(entry.name)
    return None


class Workers:
    """One worker process, killed and started again."""

    def __init__(self, url: str, log: Path) -> None:
        self._log = log
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "CRAWL_"))}
        self._environment = {
            **clean, "HOLDFAST_URL": url, "CRAWL_ALLOW_PRIVATE": "1", "CRAWL_FIRST_RETRY": "0.05", "CRAWL_TIMEOUT": "2",
            "HOLDFAST_POLL_BASE": "0.1", "HOLDFAST_POLL_MAX": "0.1", "HOLDFAST_HEARTBEAT": "0.5",
        }  # fmt: skip
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "examples.crawl", "worker"], cwd=REPOSITORY, env=self._environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def kill(self, victims: str) -> bool:
        """False: there is no runner now."""
        runner = runner_of(self.process.pid)
        if runner is None:
            return False
        if victims != "runner":
            self.process.kill()
        if victims != "worker":
            with suppress(ProcessLookupError):
                os.kill(runner, signal.SIGKILL)
        if victims != "runner":
            self.process.wait()
            self.start()
        return True

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def crawl_and_kill(
    folder: Path, start: str, url: str, home: Path, *, kills: int, seed: int, delay: float, latency: float = 0.002
) -> Verdict:
    """`url`: of a database that is set up. The kills are spread over the pages of the crawl."""
    chance = random.Random(seed)
    expected = reachable(folder, start)
    moments = sorted(chance.uniform(0.02, 0.95) * len(expected) for _ in range(kills))
    done: Counter[str] = Counter()
    fails = faults(seed, every=20)
    with connect(url) as db, Site(folder=folder, latency=latency, fault=fails) as site:
        id = str(db.value(
            "insert into crawl_jobs (start_url, delay, max_retries) values (:url, :delay, 1000) returning id",
            url=f"{site.url}{start}", delay=delay,
        ))  # fmt: skip
        began = time.monotonic()
        workers = Workers(url, home / "workers.log")
        try:
            while (status := _status(db, id)) not in ("completed", "failed", "cancelled"):
                if time.monotonic() - began > LONGEST:
                    break
                if moments and _pages(db, id) >= moments[0]:
                    victims = VICTIMS[sum(done.values()) % len(VICTIMS)]
                    time.sleep(chance.uniform(0.0, 0.05))  # anywhere between two requests, or in one
                    if workers.kill(victims):
                        done[victims] += 1
                        moments.pop(0)
                time.sleep(0.01)
        finally:
            workers.stop()
        stored = {
            row["url"].removeprefix(site.url): row["sha256"]
            for row in db.rows("select url, sha256 from crawl_pages where crawl_id = :id", id=id)
        }
        failures = sum(fails(asked, number) is not None for asked, number in _numbered(site))
        return Verdict(
            time.monotonic() - began, done, len(stored), len(site.asked), max(site.times.values()), failures,
            min(site.gaps()), sorted(expected.keys() - stored.keys()),
            sorted(path for path, digest in stored.items() if expected.get(path) != digest), status,
        )  # fmt: skip


def _numbered(site: Site) -> list[tuple[Asked, int]]:
    times: Counter[str] = Counter()
    found = []
    for asked in site.asked:
        times[asked.path] += 1
        found.append((asked, times[asked.path]))
    return found


def _status(db: Database, id: str) -> str:
    return str(db.value("select status from crawl_jobs where id = :id", id=id))


def _pages(db: Database, id: str) -> int:
    return int(db.value("select count(*) as n from crawl_pages where crawl_id = :id", id=id))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--start", default="/index.html")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--delay", type=float, default=0.02)
    parser.add_argument("--engine", choices=["sqlite", "postgres"], default="sqlite")
    given = parser.parse_args()
    if not given.folder.is_dir():
        print(f"{given.folder} is not there: apt-get install python3.11-doc, or name another tree", file=sys.stderr)
        return 1
    print(f"{given.engine}, {given.kills} kills, seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as home:
        url = f"sqlite:///{home}/crawl.db"
        if given.engine == "postgres":
            from tests.servers import shared_postgres

            url = shared_postgres()
        _set_up(url)
        verdict = crawl_and_kill(
            given.folder, given.start, url, Path(home), kills=given.kills, seed=given.seed, delay=given.delay
        )
        for name, value in vars(verdict).items():
            print(f"{name:>13}  {dict(value) if isinstance(value, Counter) else value}")
        if verdict.good and verdict.shortest_gap >= given.delay and sum(verdict.kills.values()) == given.kills:
            print("every page that can be reached is stored once, none is missed, and the pause was never undercut")
            return 0
        print("NOT AS IT SHOULD BE", (Path(home) / "workers.log").read_text()[-4000:], sep="\n")
        return 1


def _set_up(url: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "examples.crawl", "status"], cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL,
        env={**os.environ, "HOLDFAST_URL": url},
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
