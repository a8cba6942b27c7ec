"""`holdfast top`, in a terminal and elsewhere."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.cli.shell import Shell, wait_until
from tests.cli.tty import Tty, terminal
from tests.crash.proxy import a_proxy
from tests.factories import BOOM, HOUR, a_queued_job, a_running_job, ref
from tests.servers import shared_postgres

# What programs read keeps its shape.
SEEN = "at url queues workers running running_in_all failures alerts pauses took_seconds"
QUEUE = """queue due scheduled running failed pending pending_running capped oldest_due_at oldest_due_seconds
came_per_second ended_per_second workers paused"""
WORKER = "id name host pid queues slots started_at seen_at busy seen_seconds alive"
JOB = """id queue task fence worker attempt max_attempts started_at done total note pause_requested cancel_requested
elapsed_seconds rate_per_second left_seconds source source_id"""
TITLES = "2 queues due oldest later running failed ~in/s ~out/s workers paused"

ALTERNATE, BACK = b"\x1b[?1049h", b"\x1b[?1049l"

APP = """
import pathlib, time
from holdfast import Holdfast, JobContext

hf = Holdfast()

@hf.task(queue="pages")
def crawl(ctx: JobContext) -> None:
    done = 0
    while not pathlib.Path("door").exists():
        done += 1
        ctx.progress(done, total=4000, note=f"page {done}")
        time.sleep(0.05)
"""


@pytest.fixture
def shell(tmp_path: Path, settings: Settings) -> Shell:
    return Shell(tmp_path, settings, APP)


@pytest.fixture
def worker(shell: Shell, kept: Store) -> Iterator[subprocess.Popen[str]]:
    """A worker process with a job in hand that reports progress."""
    id = a_queued_job(kept, task="crawl", queue="pages")
    process = shell.start("worker", "app:hf")
    wait_until(lambda: kept.reads.get(id).done)
    yield process
    (shell.directory / "door").touch()
    process.terminate()
    process.communicate(timeout=30)


def test_where_there_is_no_terminal_one_frame_is_printed(shell: Shell, kept: Store) -> None:
    long = "a-queue-" * 30
    kept.workers.register(id="w1", name="w", host="h", pid=7, queues=None, tasks=["greet"], slots=4)
    kept.attempts.fail(ref(a_running_job(kept, queue="mail")), BOOM)
    kept.attempts.progress(ref(a_running_job(kept, queue="mail")), 30, 40, "nearly [there]\nreally \x1b[31m")
    a_queued_job(kept, queue=long)
    a_queued_job(kept, queue="mail", delay=HOUR)
    kept.pauses.add("queue", "mail", by="ops", reason="because")
    for arguments in (["top"], ["top", "--once"]):
        said = shell(*arguments, NO_COLOR="").stdout
        assert "\x1b" not in said
        lines = [line.split() for line in said.splitlines()]
        assert TITLES.split() in lines
        assert any(line[:2] == [long, "1"] for line in lines)
        [mail] = [line for line in lines if line[:1] == ["mail"]]
        assert (mail[1:2], mail[2:5], mail[-4:]) == (["·"], ["1", "1", "1"], ["1", "by", "ops:", "because"])
        assert "1 worker" in said
        assert "30/40  75%" in said
        assert "nearly [there] really \\x1b[31m" in said
        assert "Boom" in said


def test_an_empty_database_says_so(shell: Shell, kept: Store) -> None:
    assert "nothing waits, and no worker is up" in shell("top").stdout
    assert shell.json("top")["queues"] == []


def test_the_document_tells_it_to_programs(shell: Shell, kept: Store, worker: subprocess.Popen[str]) -> None:
    kept.pauses.add("queue", "pages", by="ops")
    seen = shell.json("top")
    [queue], [up], [job], [pause] = seen["queues"], seen["workers"], seen["running"], seen["pauses"]
    assert [set(part) for part in (seen, queue, up, job)] == [set(keys.split()) for keys in (SEEN, QUEUE, WORKER, JOB)]
    assert (queue["queue"], queue["running"], queue["workers"], queue["paused"]["by"]) == ("pages", 1, 1, "ops")
    assert (up["pid"], up["busy"], up["alive"]) == (worker.pid, 1, True)
    assert (job["task"], job["worker"], job["total"], job["note"]) == ("crawl", up["id"], 4000, f"page {job['done']}")
    assert job["rate_per_second"] > 0
    assert (pause["kind"], pause["name"], pause["by"]) == ("queue", "pages", "ops")


def test_jsonl_is_a_document_every_time_until_it_is_stopped(shell: Shell, kept: Store) -> None:
    process = shell.start("top", "-o", "jsonl", "--every", "0.2")
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    a_queued_job(kept, queue="mail")
    while not (seen := json.loads(process.stdout.readline()))["queues"]:
        pass
    assert (first["queues"], seen["queues"][0]["due"]) == ([], 1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert len(shell("top", "-o", "jsonl", "--once").stdout.splitlines()) == 1


def test_only_some_queues_may_be_watched(shell: Shell, kept: Store) -> None:
    for queue in ("mail", "news", "rest"):
        a_queued_job(kept, queue=queue)
    assert [row["queue"] for row in shell.json("top", "--queues", "mail,rest")["queues"]] == ["mail", "rest"]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_bad_input_is_refused(shell: Shell, kept: Store) -> None:
    shell("top", "--every", "0", code=2)
    shell("top", "--queues", " ", code=2)


# -- in a terminal -----------------------------------------------------------------------------------------------------


def ended(tty: Tty, code: int) -> None:
    """It has ended so, and the terminal is as it was."""
    wait_until(lambda: tty.process.poll() is not None, tty.text)
    assert tty.process.returncode == code, tty.text
    wait_until(lambda: tty.raw.rstrip().endswith(BACK) or BACK in tty.raw)
    assert tty.raw.rfind(BACK) > tty.raw.rfind(ALTERNATE)
    assert tty.settings() == tty.before
    assert b"Traceback" not in tty.raw


def test_it_goes_on_showing_how_far_the_work_is_until_q(
    shell: Shell, kept: Store, worker: subprocess.Popen[str]
) -> None:
    with terminal(shell, "top", "--every", "0.2") as tty:
        tty.shows("1 queue", "pages", "1 worker", str(worker.pid), "crawl", "/4,000", "━", "q quit", "sort: age")
        first = re.search(r"page (\d+)", tty.text)
        assert first
        wait_until(lambda: (now := re.search(r"page (\d+)", tty.text)) and int(now[1]) > int(first[1]), tty.text)
        a_queued_job(kept, queue="mail", task="none")
        tty.shows("2 queues", "mail")
        assert ALTERNATE in tty.raw
        tty.press("q")
        ended(tty, 0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_cleanly(shell: Shell, kept: Store, number: signal.Signals, code: int) -> None:
    with terminal(shell, "top") as tty:
        tty.shows("holdfast top", "no worker is up")
        tty.press("\x03") if number is signal.SIGINT else tty.process.send_signal(number)
        ended(tty, code)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_keys_sort_and_hold(shell: Shell, kept: Store) -> None:
    for queue in ("beta", "alpha"):
        a_queued_job(kept, queue=queue)
    a_queued_job(kept, queue="alpha")
    order = re.compile(r"^(alpha|beta)", re.MULTILINE)
    with terminal(shell, "top", "--every", "0.2") as tty:
        tty.shows("2 queues")
        assert order.findall(tty.text) == ["beta", "alpha"]  # the oldest first
        tty.press("s")
        tty.shows("sort: name")
        assert order.findall(tty.text) == ["alpha", "beta"]
        tty.press("\x1b[A\x1bOP ")  # an arrow and a function key: nothing; a space
        tty.shows("frozen", "space unfreeze")
        a_queued_job(kept, queue="gamma")
        tty.press("s")
        tty.shows("sort: size")
        assert "gamma" not in tty.text
        tty.press("r")
        tty.shows("3 queues", "gamma", "space freeze")
        tty.press("q")
        ended(tty, 0)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_resize_is_followed_at_once(shell: Shell, kept: Store) -> None:
    for number in range(50):
        a_queued_job(kept, queue=f"queue-{number:02}")
    with terminal(shell, "top", "--every", "60", columns=100, lines=30) as tty:
        tty.shows("25 of 50 queues", "workers")
        tty.resize(46, 12)
        tty.shows("7 of 50 queues")
        assert "workers " not in tty.text
        assert len(tty.lines[0]) == 46
        tty.resize(160, 60)
        tty.shows("50 queues", "workers", "queue-49", "q quit")
        assert tty.lines[-1].startswith("q quit")
        tty.press("q")
        ended(tty, 0)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_it_can_be_suspended_and_goes_on(shell: Shell, kept: Store) -> None:
    with terminal(shell, "top", "--every", "0.2") as tty:
        tty.shows("holdfast top")
        tty.press("\x1a")  # Ctrl-Z
        wait_until(lambda: Path(f"/proc/{tty.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        wait_until(lambda: BACK in tty.raw)
        assert tty.settings() == tty.before
        a_queued_job(kept, queue="meanwhile")
        os.kill(tty.process.pid, signal.SIGCONT)
        tty.shows("meanwhile")
        assert tty.raw.count(ALTERNATE) == 2
        tty.press("q")
        ended(tty, 0)


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": "vt100"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_a_poor_terminal_is_enough(shell: Shell, kept: Store, environment: dict[str, str]) -> None:
    a_queued_job(kept, queue="名前")
    kept.attempts.progress(ref(a_running_job(kept)), 1, 4, "note")
    a_queued_job(kept, queue="plain")
    with terminal(shell, "top", environment=environment) as tty:
        tty.shows("queues", "plain", "note")
        if environment.get("TERM") == "dumb":
            assert tty.process.wait(20) == 0
        else:
            tty.press("q")
            ended(tty, 0)


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_database_that_goes_away_and_comes_back_is_waited_for(shell: Shell, kept: Store) -> None:
    a_queued_job(kept, queue="mail")
    with a_proxy(shared_postgres()) as proxy:
        shell.environment["HOLDFAST_URL"] = proxy.url
        with terminal(shell, "top", "--every", "0.3") as tty:
            tty.shows("1 queue", "mail")
            proxy.loses = lambda sent: True
            tty.shows("away for", "mail")  # the last frame stays
            a_queued_job(kept, queue="news")
            proxy.loses = lambda sent: False
            tty.shows("2 queues", "news")
            wait_until(lambda: "away for" not in tty.text)
            proxy.loses = lambda sent: True
            tty.shows("away for")
            tty.press("q")  # keys go on, too
            ended(tty, 0)
