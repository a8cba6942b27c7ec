"""What a queue sets for itself, in workers that serve it: how they poll, pause after a job, and claim."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.model.job import NewJob
from holdfast.runners.process_pool import ProcessPool
from holdfast.settings import Settings
from holdfast.worker.worker import Worker
from tests.running import Heard, MakeApp, working
from tests.waiting import wait_until

RARELY = {"listen": False, "lease": 600.0, "poll_base": 60.0, "poll_max": 60.0}  # no look but by polling
OFTEN = {"poll_base": 0.02, "poll_max": 0.05}


def two_queues(app: Holdfast) -> Holdfast:
    @app.task(queue="mail")
    def send(n: int) -> int:
        return n

    @app.task(queue="files")
    def resize(n: int) -> int:
        return n

    return app


@pytest.mark.parametrize(
    ("served", "wait"), [(["mail"], 0.02), (["files"], 60.0), (["files", "mail"], 0.02), (None, 0.02)]
)
def test_a_worker_polls_as_its_most_eager_queue_says(
    make_app: MakeApp, heard: Heard, served: list[str] | None, wait: float
) -> None:
    app = two_queues(make_app(**RARELY, queues={"mail": OFTEN, "elsewhere": {"poll_base": 0.001}}))
    with working(app, served):
        wait_until(lambda: heard.of("polled"))
        if served != ["files"]:
            assert app.find_task("send").enqueue(1).wait(timeout=20) == 1
    assert heard.of("polled")[0]["wait"] == wait


def test_the_wait_between_empty_polls_grows_as_the_queue_says(make_app: MakeApp, heard: Heard) -> None:
    growth = {"poll_base": 0.02, "poll_max": 0.07, "poll_multiplier": 2.0, "poll_grace": 3}
    with working(two_queues(make_app(**RARELY, queues={"mail": growth})), ["mail"]):
        wait_until(lambda: any(poll["empty_polls"] == 6 for poll in heard.of("polled")))
    waits = {poll["empty_polls"]: poll["wait"] for poll in heard.of("polled")}
    assert [waits[polls] for polls in range(1, 7)] == [0.02, 0.02, 0.02, 0.04, 0.07, 0.07]


@pytest.mark.parametrize(("served", "most"), [(["mail"], 2), (["files"], 3), (["mail", "files"], 3), (["news"], 9)])
def test_a_claim_takes_no_more_than_its_size(make_app: MakeApp, heard: Heard, served: list[str], most: int) -> None:
    queues = {"mail": {"claim_size": 2}, "news": {"claim_size": 0}}
    app = make_app(claim_size=3, threads=9, queues=queues)
    together = threading.Barrier(9)

    @app.task
    def task() -> None:
        together.wait(20)  # a small claim leaves no slot empty: the next one follows at once

    app.enqueue_many(task.using(queue=served[0]).bind() for _ in range(9))
    assert app.drain(served) == 9
    counts = [claim["count"] for claim in heard.of("claimed")]
    assert (sum(counts), max(counts)) == (9, most)


@pytest.mark.parametrize(("served", "delayed"), [(["mail"], True), (["files"], False), (["mail", "files"], False)])
def test_a_worker_pauses_after_a_job_if_all_its_queues_say_so(
    make_app: MakeApp, served: list[str], delayed: bool
) -> None:
    app = make_app(threads=1, queues={"mail": {"after_job_delay": 0.3}})
    began: list[float] = []

    @app.task
    def task() -> None:
        began.append(time.monotonic())

    app.enqueue_many(task.using(queue=served[0]).bind() for _ in range(4))
    assert app.drain(served) == 4
    shortest = min(later - earlier for earlier, later in pairwise(began))
    assert (shortest >= 0.3) is delayed


def test_a_worker_with_processes_of_its_own_learns_them_from_the_application(
    settings: Settings, make_app: MakeApp, heard: Heard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("url", "schema", "synchronous"):
        monkeypatch.setenv(f"HOLDFAST_{name.upper()}", getattr(settings, name))
    (tmp_path / "app.py").write_text(
        "from holdfast import Holdfast\n"
        "hf = Holdfast(threads=9, queues={'mail': {'claim_size': 2, 'poll_max': 5}})\n"
        "@hf.task(queue='mail')\n"
        "def send() -> None: ...\n"
    )
    app = make_app()
    pool = ProcessPool(f"{tmp_path}/app.py")
    assert pool.settings.queues == {"mail": {"claim_size": 2, "poll_max": 5}}
    for _ in range(9):
        app.store.enqueue(NewJob(task="send", queue="mail", args=b"{}"))
    assert Worker(app.store, pool.settings, pool).drain() == 9
    assert max(claim["count"] for claim in heard.of("claimed")) == 2
