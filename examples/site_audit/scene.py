"""A short scene, played by real processes: a web server, workers, and sites on this machine."""

from __future__ import annotations

import os
import signal
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2

from examples.scenes import Stage, console, say
from examples.site_audit import database

NIGHT = 20  # sites
UNFINISHED = {"pending", "processing"}


def play() -> int:
    """0, if all went as it should."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="site-audit-")))
        os.environ.setdefault("HOLDFAST_URL", f"sqlite:///{home}/site-audit.db")
        os.environ["SITE_AUDIT_ALLOW_PRIVATE"] = "1"  # the sites are on this machine
        os.environ["SITE_AUDIT_BACKOFF"] = "1"
        os.environ.setdefault("SITE_AUDIT_BROWSER", "none")  # it takes seconds for each of them
        from tests.examples.site_audit.sites import Sites

        return Scene(home, stack.enter_context(Sites())).play()


class Scene:
    def __init__(self, home: Path, sites: Any) -> None:
        from examples.site_audit.app import audits, hf

        self._hf = hf
        self._audits = audits
        self._url = hf.settings.url
        self._stage = Stage("examples.site_audit", home)
        self._sites = sites
        self._before = Counter[str]()  # audits of earlier scenes, by status

    def play(self) -> int:
        where = "a fresh SQLite file" if database.is_sqlite(self._url) else "PostgreSQL"
        say(f"The queue is the table audits, in {where}. The sites are on this machine.")
        with self._stage.running("serve", "--port", "0", "--no-worker") as server, self._stage.running("worker"):
            address = self._stage.address(server)
            with self._stage.running("worker"), httpx2.Client(base_url=address, timeout=60) as self._client:
                self._stage.wait_for(lambda: len(self._hf.workers()) == 2, "two workers")
                self._before = Counter(database.counted(self._url))
                self._mended()
                self._killed_worker()
                self._gone()
                self._night()
                self._summary()
        return self._stage.verdict()

    # -- acts ----------------------------------------------------------------------------------------------------------

    def _mended(self) -> None:
        console.rule("A person asks what is wrong with a bakery's site", align="left")
        before = self._finished(self._analyze(self._sites.bad("/")))
        say(f"Score {before['score']}: " + ", ".join(f"{name} {score}" for name, score in before["scores"].items()))
        for finding in before["findings"][:4]:
            say(f"  {finding['severity']:8}  {finding['text']} {finding['element'] or ''}")
        console.rule("The baker mends it, and a program asks again with plain SQL", align="left")
        self._sites.good("/")
        after = self._finished(database.analyze(self._url, f"{self._sites.url}/"))
        fixed, new = len(after["compared"]["fixed"]), len(after["compared"]["new"])
        more = after["score"] - before["score"]
        say(f"Score {after['score']}, {more} more: {fixed} findings are gone, {new} are new.")
        self._stage.expect(after["previous"]["id"] == before["id"], "the second audit is not compared with the first")
        self._stage.expect(after["score"] > before["score"], "the mended site is not better")

    def _killed_worker(self) -> None:
        console.rule("A worker is killed while it follows links (kill -9)", align="left")
        self._sites.hold("/slow")
        read = self._sites.requests.count("/robots.txt")
        id = self._analyze(self._sites.good("/long", '<a href="/slow">x</a>'))
        self._stage.wait_for(lambda: "/slow" in self._sites.requests, "it to follow links")
        job = self._audits.job(id)
        [pid] = [one.pid for one in self._hf.workers() if one.id == job.record.worker]
        os.kill(pid, signal.SIGKILL)
        self._sites.held.set()
        row = self._finished(id)
        times = self._sites.requests.count("/robots.txt") - read
        self._stage.expect(
            (row["retry_count"], times) == (1, 1), f"{row['retry_count']} retries, the page read {times} times"
        )
        say(f"The other worker went on with the links: the page itself was read {times} time.")

    def _gone(self) -> None:
        console.rule("A site is busy for good", align="left")
        row = self._finished(self._analyze(self._sites.page("/busy", "busy", 503)))
        [group] = self._hf.error_groups("source:audits")
        self._stage.expect((row["status"], row["retry_count"]) == ("failed", 3), f"it is {row['status']}")
        say(f"Failed after {row['retry_count']} attempts, ever further apart: {group.error_code}, {group.jobs} audit.")

    def _night(self) -> None:
        console.rule(f"At night: {NIGHT} sites by schedule, and a person who asks meanwhile", align="left")
        sites = [self._sites.good(f"/{n}") for n in range(NIGHT)]
        self._write("insert into sites (url) values (?)", sites)
        self._hf.run_cron("overnight")
        self._stage.wait_for(lambda: sum(self._counts().values()) > NIGHT, "the night to begin")
        self._write("delete from sites where url = ?", sites)  # they are gone when the scene ends
        person = self._finished(self._analyze(self._sites.good("/person")))
        left = sum(self._counts()[status] for status in UNFINISHED)
        say(f"The person had a score ({person['score']}) while {left} of the night's audits were still to be done.")
        self._stage.wait_for(lambda: not self._counts().keys() & UNFINISHED, "the night to end")
        stale = database.stale(self._url)
        self._stage.expect(stale == [], f"{len(stale)} audits look stale")

    def _summary(self) -> None:
        console.rule("Counted from the table", align="left")
        counts = self._counts()
        say(", ".join(f"{number} {status}" for status, number in sorted(counts.items())))
        expected = {"completed": NIGHT + 4, "failed": 1}
        self._stage.expect(counts == expected, f"{expected} were expected")

    # -- the parts -----------------------------------------------------------------------------------------------------

    def _analyze(self, address: str) -> str:
        answer = self._client.post("/api/audits", json={"url": address})
        answer.raise_for_status()
        return str(answer.json()["id"])

    def _finished(self, id: str) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            document: dict[str, Any] = self._client.get(f"/api/audits/{id}").json()
            return document if document["status"] in ("completed", "failed") else None

        document: dict[str, Any] = self._stage.wait_for(found, "the audit")
        return document

    def _counts(self) -> Counter[str]:
        """The audits of this scene, by status."""
        return Counter(database.counted(self._url)) - self._before

    def _write(self, statement: str, sites: list[str]) -> None:
        with database.connect(self._url) as db:
            for site in sites:
                db.execute(database.written(self._url, statement), [site])
