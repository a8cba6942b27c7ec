"""A site is crawled: every page that can be reached is stored once, and what can't be had is listed with its reason."""

from __future__ import annotations

import csv
import hashlib
import os
import signal
import subprocess
import sys
import threading
import zlib

from examples.crawl import app
from examples.crawl.database import Database
from examples.crawl.exports import EXPORTS, lines
from examples.crawl.reports import one_crawl
from holdfast import Holdfast, Job, State
from tests.examples.claim_check.application import REPOSITORY
from tests.examples.crawl.application import (
    Process,
    Start,
    await_word,
    crawl,
    ended,
    environment,
    stored,
    word,
)
from tests.examples.crawl.killing import runner_of
from tests.examples.crawl.site import Asked, Page, Reply, Site, faults, page
from tests.waiting import wait_until


def tree(size: int) -> dict[str, Page]:
    """Pages that each lead to two others, back to the start, and past the end."""
    pages: dict[str, Page] = {
        f"/{n}": page(f"{2 * n + 1}", f"/{2 * n + 2}", "/", "#top", title=f"Page {n}") for n in range(1, size)
    }
    return {"/": page("/1", "/2", "./", title="The start"), **pages}


def digest(text: Page) -> str:
    assert isinstance(text, str)
    return hashlib.sha256(text.encode()).hexdigest()


def test_every_page_is_stored_once_and_what_is_missing_is_listed(hf: Holdfast, db: Database) -> None:
    pages = tree(15)
    with Site({**pages, "/robots.txt": Reply("User-agent: *\nDisallow: /14", type="text/plain")}) as site:
        job = crawl(site)
        hf.drain()
    assert (job.refresh().state, word(db, job)) == (State.SUCCEEDED, "completed")
    assert stored(db, job) == {path: digest(text) for path, text in pages.items() if path != "/14"}
    missing = {f"/{n}": ("dead", "HTTP_404: the host answered 404") for n in range(15, 29)}
    assert ended(db, job) == {**missing, "/14": ("skipped", "robots.txt forbids it")}
    assert site.paths.count("/robots.txt") == 1
    assert "/14" not in site.paths
    body = db.value("select body from crawl_pages where url = :url", url=f"{site.url}/3")
    assert zlib.decompress(body).decode() == pages["/3"]


def test_what_fails_is_tried_again_and_listed(hf: Holdfast, db: Database) -> None:
    pages: dict[str, Page] = {"/": page("/flaky", "/broken", "/cut"), "/flaky": page(), "/cut": page()}
    answers = {("/flaky", 1): Reply("x", 500), ("/cut", 1): Reply(page(), cut=True)}

    def fault(asked: Asked, number: int) -> Reply | None:
        path = asked.path
        return Reply("never", 500) if path == "/broken" else answers.get((path, number))

    with Site(pages, fault=fault) as site:
        job = crawl(site)
        hf.drain()
    assert set(stored(db, job)) == set(pages)
    assert ended(db, job) == {"/broken": ("dead", "HTTP_500: the host answered 500")}
    assert site.times["/broken"] == 5
    errors = list(csv.DictReader(lines(db, EXPORTS["errors"], job.source_id or "")))
    assert sorted(error["code"] for error in errors) == ["HTTP_500"] * 6 + ["UNREACHABLE"]
    dead = list(csv.DictReader(lines(db, EXPORTS["dead-links"], job.source_id or "")))
    assert [(line["page"], line["target"]) for line in dead] == [(f"{site.url}/", f"{site.url}/broken")]


def test_a_start_page_that_cannot_be_had_fails_the_crawl_with_the_reason(hf: Holdfast, db: Database) -> None:
    with Site({}) as site:
        job = crawl(site)
        hf.drain()
        assert db.row("select status, error_message from crawl_jobs where id = :id", id=job.source_id) == {
            "status": "failed", "error_message": "the start page can't be had: HTTP_404: the host answered 404"
        }  # fmt: skip
        site.pages["/"] = page(title="back again")
        job.retry()
        hf.drain()
    assert (word(db, job), set(stored(db, job))) == ("completed", {"/"})


def test_a_start_page_that_is_no_page_of_the_crawl_fails_it_with_the_reason(hf: Holdfast, db: Database) -> None:
    pages: dict[str, Page] = {
        "/robots.txt": Reply("User-agent: *\nDisallow: /no", type="text/plain"), "/no": page(),
        "/file": Reply("x", type="text/plain"), "/to": Reply(status=302, headers={"Location": "/gone"}),
    }  # fmt: skip
    with Site(pages) as site:
        jobs = [crawl(site, path) for path in ("/no", "/file", "/to")]
        hf.drain()
        said = [db.value("select error_message from crawl_jobs where id = :id", id=job.source_id) for job in jobs]
        assert said == [f"the start page can't be had: {why}" for why in (
            "robots.txt forbids it", "type: text/plain", "HTTP_404: the host answered 404"
        )]  # fmt: skip
        site.pages["/gone"] = page()
        jobs[2].retry()
        hf.drain()
    assert (word(db, jobs[2]), set(stored(db, jobs[2]))) == ("completed", {"/gone"})


def test_a_killed_crawl_goes_on_where_it_was(start: Start, db: Database) -> None:
    """Its runner is killed, then its worker, then both at once, each in the middle of requests."""
    pages = tree(60)
    with Site(pages, latency=0.02, fault=faults(3, every=15)) as site:
        job = app.crawls.submit(start_url=f"{site.url}/", delay=0.01, max_retries=100)
        worker = start("worker")
        for n, victims in enumerate(("runner", "worker", "both"), start=1):
            worker = kill_one(start, db, job, worker, victims, pages=12 * n)
        assert await_word(db, job, "completed", "failed") == "completed", worker.log
    assert stored(db, job) == {path: digest(text) for path, text in pages.items()}
    assert min(site.gaps()) >= 0.01
    again = [path for path, times in site.times.items() if times > 2]
    assert len(again) <= 3, "a kill repeats what was under way, and no more"


def kill_one(start: Start, db: Database, job: Job[None], worker: Process, victims: str, pages: int) -> Process:
    """Once it has so many pages. Returns the worker that is there then."""
    wait_until(lambda: len(stored(db, job)) > pages, f"{pages} pages", timeout=60.0)
    runner = wait_until(lambda: runner_of(worker.pid), "a runner")
    if victims in ("worker", "both"):
        kill(worker.pid)
    if victims in ("runner", "both"):
        kill(runner)
    if victims == "runner":
        return worker
    worker.wait()
    return start("worker")


def kill(pid: int | None) -> None:
    assert pid is not None
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it died with its worker


def test_a_reader_beside_it_finds_the_pending_of_the_frontier_at_any_moment(
    start: Start, db: Database, url: str
) -> None:
    """The query that was there before, and the rows themselves, in one snapshot."""
    over = threading.Event()
    wrong: list[tuple[int, int]] = []
    seen: set[int] = set()

    def read() -> None:
        reader = Database(url)
        while not over.wait(0.005):
            row = reader.row("""
                select (select coalesce(sum(s.total_pending), 0)
                          from crawl_states s join crawl_jobs j on j.id = s.crawl_id
                         where j.status = 'processing') as said,
                       (select count(*) from crawl_urls u join crawl_jobs j on j.id = u.crawl_id
                         where j.status = 'processing' and u.state = 'todo') as counted
            """)  # fmt: skip
            assert row is not None
            seen.add(int(row["said"]))
            if row["said"] != row["counted"]:
                wrong.append((int(row["said"]), int(row["counted"])))
        reader.close()

    thread = threading.Thread(target=read)
    with Site(tree(60)) as site:
        jobs = [crawl(site), crawl(site, "/1")]
        thread.start()
        try:
            start("worker")
            for job in jobs:
                assert await_word(db, job, "completed", "failed") == "completed"
        finally:
            over.set()
            thread.join()
    assert not wrong
    assert len(seen) > 5, "it was read while it changed"
    assert db.rows("select distinct total_pending from crawl_states") == [{"total_pending": 0}]


def test_two_crawls_of_one_host_take_turns_and_keep_its_pause(start: Start, db: Database) -> None:
    with Site(tree(5)) as site:
        jobs = [crawl(site, delay=0.15), crawl(site, "/1", delay=0.1)]
        start("worker")
        for job in jobs:
            assert await_word(db, job, "completed", "failed") == "completed"
    assert min(site.gaps()) >= 0.1


def test_the_command_line_starts_a_crawl_and_tells_how_it_stands(hf: Holdfast, db: Database, url: str) -> None:
    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "examples.crawl", *command], cwd=REPOSITORY, env=environment(url), text=True,
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    with Site({"/": page("/gone", title="=cmd()")}) as site:
        id = run("start", f"{site.url}/#top", "--delay", "0").strip()
        assert run("pause", id).strip() == "paused"
        assert run("resume", id).strip() == "queued"
        hf.drain()
        assert f'"start_url": "{site.url}/"' in run("status", id)
        [line] = csv.DictReader(run("export", id, "pages").splitlines())
        assert (line["url"], line["title"], line["depth"]) == (f"{site.url}/", "'=cmd()", "0")
    shown = one_crawl(db, id)
    assert shown is not None
    assert (shown["pages"], shown["dead"], shown["pending"], shown["links"]) == (1, 1, 0, 1)
    assert one_crawl(db, "no such crawl") is None


def test_what_is_unknown_is_not_exported(url: str) -> None:
    """On a database, too, that has no tables yet."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.crawl", "export", "none", "pages"], cwd=REPOSITORY, env=environment(url),
        text=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "Error: there is no crawl none\n")
