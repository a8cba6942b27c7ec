"""Those who steer jobs while everything happens, a process of its own: `python -m tests.chaos.people NAME SEED`. Each
action is logged before and after. With `settle` as the only argument: end every pause, so that everything can end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, OutcomeUnknown, StoreError
from holdfast.job import Job
from tests.chaos.app import hf
from tests.chaos.writing import Log

HOME = Path(os.environ["CHAOS_HOME"])
HELD: list[dict[str, Any]] = [{"queue": "side"}, {"task": "doze"}, {"task": "nap", "where": {"seconds": 0.5}}]
RECENT = 300  # jobs among which they choose
LONG = ("late", "late_snooze", "late_retry", "late_fail", "late_cancel", "long", "along", "steps", "asteps", "spawner")
PATIENCE = 60.0


class People:
    def __init__(self, name: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.log = Log(HOME / f"people-{name}.jsonl")
        self.count = 0
        self.stopping = False
        self.to_resume: list[tuple[float, str]] = []  # jobs we paused, and when we let them go on

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        for what in HELD:  # who was here before us may have been killed before they could do it
            self.ask("let_go", None, lambda what=what: hf.resume_matching(**_jobs(what)), **what)
        while not self.stopping:
            try:
                self.one()
            except HoldfastError as error:
                self.log.write(what="trouble", error=str(error))
            time.sleep(self.random.expovariate(1 / 0.4))

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def one(self) -> None:
        dice = self.random
        if self.to_resume and self.to_resume[0][0] < time.monotonic():
            paused = self.to_resume.pop(0)[1]
            self.ask("resume", paused, hf.job(paused).resume)
            return
        choice = dice.random()
        if choice < 0.06:
            self.hold(dice.choice(HELD))
            return
        recent = [job for job in hf.jobs(limit=RECENT) if job.task != "unheard_of"]
        verbs = ["pause", "pause", "resume", "cancel", "cancel", "change", "retry"]
        if choice < 0.25:
            recent = [job for job in recent if job.state.value in ("failed", "cancelled")]
            verbs = ["retry", "retry", "pause"]
        elif choice < 0.6:  # those that can be asked something while they run
            recent = [job for job in recent if job.state.value == "running" and job.task in LONG]
            verbs = ["pause", "pause", "resume", "cancel", "cancel", "cancel"]
        elif choice < 0.8:
            recent = [job for job in recent if not job.finished]
        if recent:
            self.steer(dice.choice(verbs), hf.job(dice.choice(recent).id))

    def steer(self, verb: str, job: Job[Any]) -> None:
        if verb == "change":
            self.ask("change", job.id, lambda: job.change(priority=self.random.randint(-5, 5)))
        elif self.random.random() < 0.1:
            self.by_command(verb, job.id)
        else:
            self.ask(verb, job.id, getattr(job, verb))
        if verb == "pause":
            self.to_resume.append((time.monotonic() + self.random.uniform(0.5, 4), job.id))

    def by_command(self, verb: str, job: str) -> None:
        def run() -> str:
            command = [sys.executable, "-m", "holdfast", "jobs", verb, job]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
            if done.returncode:
                raise HoldfastError(f"status {done.returncode}: {(done.stdout + done.stderr)[-300:]}")
            return "by command"

        self.ask(verb, job, run)

    def hold(self, what: dict[str, Any]) -> None:
        self.ask("hold", None, lambda: hf.pause_matching(**_jobs(what)).name, **what)
        time.sleep(self.random.uniform(0.5, 3))
        self.ask("let_go", None, lambda: hf.resume_matching(**_jobs(what)), **what)

    def ask(self, verb: str, job: str | None, act: Any, **more: Any) -> None:
        self.count += 1
        self.log.write(what="invoke", op=self.count, verb=verb, job=job, **more)
        try:
            state = act()
        except HoldfastError as error:
            unknown = isinstance(error, OutcomeUnknown) or "status" in str(error)
            self.log.write(what="info" if unknown else "fail", op=self.count, error=str(error))
        else:
            self.log.write(what="ok", op=self.count, state=getattr(state, "value", state))


def _jobs(what: dict[str, Any]) -> dict[str, Any]:
    """Which jobs to hold, as the verbs take it."""
    words = [f"{kind}:{what[kind]}" for kind in ("queue", "task") if kind in what]
    return {"filter": " ".join(words), "args": what.get("where")}


def settle() -> None:
    """Resume whatever is paused, until nothing is."""
    log = Log(HOME / "people-settle.jsonl")
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            for pause in hf.pauses():
                log.write(what="let_go", kind=pause.kind, name=pause.name)
                hf.resume_matching(pause.name if pause.kind == "filter" else f"{pause.kind}:{pause.name}")
            done = hf.resume_jobs("state:paused")
            log.write(what="resumed", done=repr(done))
            if not hf.pauses() and not hf.jobs("state:paused", limit=1):
                return
        except StoreError as error:
            log.write(what="trouble", error=str(error))
        time.sleep(0.2)
    raise SystemExit("some pauses would not end")


if __name__ == "__main__":
    if sys.argv[1:] == ["settle"]:
        settle()
    else:
        People(sys.argv[1], int(sys.argv[2])).run()
