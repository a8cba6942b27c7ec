"""A short scene, played by real processes: a web server, two workers, and a model. Unless CLAIM_CHECK_MODEL_URL names
one, the stand-in of the tests answers. It knows its answers beforehand."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from examples.claim_check import database
from examples.scenes import Stage, console, say

CROWD = 200
ADVERTS = [
    "Clinically proven to remove 99% of wrinkles in three days.",
    "The world's first battery that never needs charging.",
    "Nine out of ten dentists recommend this toothbrush.",
    "Loses ten kilos in a week, without any diet.",
    "Handmade in Italy since 1921, from a single piece of leather.",
    "This cable makes every song sound like a concert.",
]


def play() -> int:
    """0, if all went as it should."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="claim-check-")))
        os.environ.setdefault("HOLDFAST_URL", f"sqlite:///{home}/claim-check.db")
        standin = None
        if "CLAIM_CHECK_MODEL_URL" not in os.environ:
            from tests.examples.claim_check.standin import StandIn

            standin = stack.enter_context(StandIn())
            os.environ["CLAIM_CHECK_MODEL_URL"] = standin.url
        return Scene(home, standin).play()


class Scene:
    def __init__(self, home: Path, standin: Any) -> None:
        from examples.claim_check.app import hf

        self._hf = hf
        self._stage = Stage("examples.claim_check", home)
        self._standin = standin
        self._name = f"(scene of {time.strftime('%Y-%m-%d %H:%M:%S')})"  # makes its adverts new on an old database

    def play(self) -> int:
        where = "a fresh SQLite file" if database.is_sqlite(self._hf.settings.url) else "PostgreSQL"
        say(f"The queue is the table analysis_jobs, in {where}. Two workers and a web server use it.")
        if self._standin is not None:
            say("No model is configured (CLAIM_CHECK_MODEL_URL): a stand-in answers. Its verdicts mean nothing.")
        with self._stage.running("serve", "--port", "0", "--no-worker") as server, self._stage.running("worker"):
            address = self._stage.address(server)
            with self._stage.running("worker"), httpx2.Client(base_url=address, timeout=60) as self._client:
                self._stage.wait_for(lambda: len(self._hf.workers()) == 2, "two workers")
                self._crowd()
                self._killed_worker()
                self._bad_report()
                self._once_more()
        self._summary()
        return self._stage.verdict()

    # -- acts ----------------------------------------------------------------------------------------------------------

    def _crowd(self) -> None:
        console.rule(f"{CROWD} people paste the same advert at once", align="left")
        before = self._calls()
        with ThreadPoolExecutor(32) as people:
            answers = list(people.map(lambda _: self._submit(ADVERTS[0]), range(CROWD)))
        jobs = {answer["job_id"] for answer in answers}
        self._follow(jobs)
        self._stage.expect(len(jobs) == 1, f"{CROWD} equal submissions made {len(jobs)} jobs")
        if self._standin is not None:
            calls = self._calls() - before
            self._stage.expect(calls == 1, f"{CROWD} equal submissions cost {calls} model calls")
            say(f"{CROWD} submissions, {len(jobs)} job, {calls} call of the model.")

    def _killed_worker(self) -> None:
        console.rule("A worker is killed while it waits for the model (kill -9)", align="left")
        slow = self._submit(f"{ADVERTS[1]} [[slow 5]]")["job_id"]
        others = {self._submit(text)["job_id"] for text in ADVERTS[2:]}
        job = self._hf.adopted["analysis_jobs"].job(slow)
        worker = self._stage.wait_for(lambda: job.refresh().record.worker, "somebody to take it")
        [pid] = [one.pid for one in self._hf.workers() if one.id == worker]
        os.kill(pid, signal.SIGKILL)
        self._follow({slow, *others})
        attempts = job.refresh().record.attempt
        self._stage.expect(attempts == 2, f"the job of the killed worker has {attempts} attempts")
        say("Its job went to the other worker and was done there, on its second attempt.")

    def _bad_report(self) -> None:
        console.rule("The model never keeps to the form of the report", align="left")
        id = self._submit(f"{ADVERTS[3]} [[invalid-always]]")["job_id"]
        self._follow({id})
        row = self._hf.adopted["analysis_jobs"].row(id)
        code, attempts = row["last_error_code"], row["attempts"]
        if self._standin is not None:
            self._stage.expect((code, attempts) == ("SCHEMA_VALIDATION_FAILED", 1), f"it ended with {code}")
        say(f"Asked once more, then failed for good: {code}, {attempts} attempt.")

    def _once_more(self) -> None:
        console.rule("Everybody asks again", align="left")
        before = self._calls()
        again = [self._submit(text)["status"] for text in (ADVERTS[0], f"{ADVERTS[1]} [[slow 5]]", *ADVERTS[2:])]
        calls = self._calls() - before
        self._stage.expect(set(again) == {"cached"} and not calls, f"asking again gave {again} and cost {calls} calls")
        say(f"{len(again)} answers at once, all from the table.")

    # -- the parts -----------------------------------------------------------------------------------------------------

    def _submit(self, text: str) -> dict[str, Any]:
        answer = self._client.post("/functions/v1/analyze_product", json={"text": f"{text} {self._name}"})
        answer.raise_for_status()
        document: dict[str, Any] = answer.json()
        return document

    def _follow(self, ids: set[str]) -> None:
        """Until they are done, with a bar on a terminal."""
        columns = TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn()
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            shown = bar.add_task("analyses", total=len(ids))

            def finished() -> bool:
                jobs = self._hf.adopted["analysis_jobs"]
                done = sum(jobs.row(id)["status"] in ("done", "failed") for id in ids)
                bar.update(shown, completed=done)
                return done == len(ids)

            self._stage.wait_for(finished, "the analyses")

    def _calls(self) -> int:
        return 0 if self._standin is None else int(self._standin.calls)

    def _summary(self) -> None:
        console.rule("Counted from the table", align="left")
        counts = database.counted(self._hf.settings.url)
        say(", ".join(f"{number} {status}" for status, number in sorted(counts.items())))
        self._stage.expect(not counts.keys() & {"queued", "running"}, f"work is left: {counts}")
        if self._standin is not None:
            say(f"{self._calls()} calls of the model in all.")
