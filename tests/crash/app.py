"""The application the crash tests run: handlers that leave a trace outside the database, so that what was lost or done
twice is counted from outside."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import multiprocessing
import os
import signal
import subprocess
import time
from enum import IntEnum
from pathlib import Path
from typing import Any

from holdfast import Holdfast, JobContext
from holdfast.errors import LeaseLost
from tests.crash.hostile import attack
from tests.crash.listening import listen

hf = Holdfast()


class State(IntEnum):
    SEVEN = 7


LEDGER = os.environ.get("CRASH_LEDGER", "")
FOREVER = 600.0  # seconds: longer than any test


def note(ctx: JobContext | None, what: str) -> None:
    """One line, written at once: whoever is killed afterwards has left it. (Where it crosses a page, who is killed in
    the middle leaves a part of it: so it begins with an end of line, too.)"""
    if LEDGER:
        about = "- - 0" if ctx is None else f"{ctx.job.id} {ctx.fence} {ctx.attempt}"
        line = f"\n{what} {about} {os.getpid()} {time.time():.6f}\n"
        trace = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(trace, line.encode())
        os.close(trace)


note(None, "import")


@hf.task
def quick(ctx: JobContext, number: int = 0) -> int:
    note(ctx, "start")
    note(ctx, "end")
    return number


@hf.task
async def aquick(ctx: JobContext, number: int = 0) -> int:
    note(ctx, "start")
    note(ctx, "end")
    return number


@hf.task
def nap(ctx: JobContext, seconds: float) -> str:
    """Sleeps, and hears nothing meanwhile."""
    note(ctx, "start")
    time.sleep(seconds)
    note(ctx, "end")
    return ctx.fence


@hf.task
async def doze(ctx: JobContext, seconds: float) -> str:
    note(ctx, "start")
    await asyncio.sleep(seconds)
    note(ctx, "end")
    return ctx.fence


@hf.task
def hold(ctx: JobContext, until: str) -> str:
    """Runs until a file exists."""
    note(ctx, "start")
    while not Path(until).exists():
        time.sleep(0.01)
    note(ctx, "end")
    return ctx.fence


@hf.task
async def ahold(ctx: JobContext, until: str) -> str:
    note(ctx, "start")
    while not Path(until).exists():  # noqa: ASYNC110, ASYNC240 - it waits for another process
        await asyncio.sleep(0.02)
    note(ctx, "end")
    return ctx.fence


@hf.task
def heed(ctx: JobContext) -> str | None:
    """Runs until it should stop, and then does."""
    note(ctx, "start")
    deadline = time.monotonic() + FOREVER
    while not ctx.should_stop() and time.monotonic() < deadline:
        time.sleep(0.01)
    note(ctx, "end")
    return None


@hf.task(max_attempts=20)
def pay(ctx: JobContext, number: int) -> None:
    """Exactly once: the effect and the outcome are one commit."""
    note(ctx, "start")
    with ctx.transaction() as tx:
        tx.conn.execute(f"insert into payments (job, fence) values ({int(ctx.job.id)}, '{ctx.fence}')")
        tx.set_result(number)
    note(ctx, "end")


@hf.task(progress_timeout=1.5, max_attempts=1)
def creep(ctx: JobContext, seconds: float, stalls: bool = False) -> str:
    """Saves what it has, time and again, unless it stalls."""
    note(ctx, "start")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not stalls:
            ctx.checkpoint({})
        time.sleep(0.1)
    note(ctx, "end")
    return ctx.fence


@hf.task
def leave(ctx: JobContext, seconds: float) -> int:
    """Starts a program that outlives its group."""
    note(ctx, "start")
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    time.sleep(seconds)
    note(ctx, "end")
    return 1


def _sleep(began: Any) -> None:
    began.set()
    time.sleep(FOREVER)


@hf.task
def fork(ctx: JobContext) -> int:
    """Ends a process that it forked, as multiprocessing does, and another that it leaves to itself."""
    note(ctx, "start")
    here = multiprocessing.get_context("fork")
    began = here.Event()
    other = here.Process(target=_sleep, args=(began,))
    other.start()
    began.wait(20)
    other.terminate()
    other.join(20)
    note(ctx, "end")
    return int(other.exitcode or 0)


@hf.task
async def tell(ctx: JobContext, seconds: float) -> None:
    """Reports with numbers of another kind."""
    note(ctx, "start")
    ctx.progress(True, total=State(7))
    await asyncio.sleep(seconds)
    note(ctx, "end")


@hf.task
def grip(ctx: JobContext, seconds: float) -> str:
    """Holds the GIL: no other thread of its process runs meanwhile."""
    note(ctx, "start")
    ctypes.PyDLL(None).poll(None, 0, int(seconds * 1000))  # a call into C that does not let go of it
    note(ctx, "end")
    return ctx.fence


@hf.task(timeout=1.0, max_attempts=1)
def overrun(ctx: JobContext) -> None:
    """Does not hear that its time is over."""
    note(ctx, "start")
    time.sleep(FOREVER)


@hf.task
def die(ctx: JobContext, how: str, after: float = 0.0, reached: int = 0) -> None:
    """Takes its worker with it."""
    note(ctx, "start")
    if reached:
        ctx.progress(reached, total=10)
    time.sleep(after)
    if how == "exit":
        os._exit(3)
    faulthandler.disable()
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(FOREVER)


@hf.task(max_attempts=2)
def poison(ctx: JobContext, kind: str) -> object:
    """Returns what can't be kept."""
    note(ctx, "start")
    match kind:
        case "nul":
            return {"text": "a\x00b"}
        case "huge":
            return "x" * (ctx_limit() + 1)
        case "deep":
            value: object = 1
            for _ in range(5_000):
                value = [value]
            return value
        case "nan":
            return float("nan")
        case "surrogate":
            return "\ud800"
        case "integer":
            return 10**5_000
        case "object":
            return object()
        case "cycle":
            ring: list[object] = []
            ring.append(ring)
            return ring
        case "raises-nul":
            raise ValueError("a\x00b \ud800 " + "x" * 100_000)
        case _:
            return kind


def ctx_limit() -> int:
    return hf.settings.max_result


@hf.task
def save(ctx: JobContext, until: str) -> str:
    """Keeps saving progress until a file exists; says in the ledger when it was refused."""
    note(ctx, "start")
    try:
        while not Path(until).exists():
            ctx.checkpoint({"at": time.time()})
            time.sleep(0.01)
    except LeaseLost:
        note(ctx, "refused")
        raise
    except BaseException:
        note(ctx, "stopped")
        raise
    note(ctx, "end")
    return ctx.fence


@hf.task
def attend(ctx: JobContext, way: str) -> None:
    """Works until it is told to stop, in this way."""
    note(ctx, "start")
    try:
        match way:
            case "track":
                for _ in ctx.track(range(10**9)):
                    time.sleep(0.001)
            case "checkpoint":
                while True:
                    ctx.checkpoint({"at": time.time()}, pending=3)
                    time.sleep(0.02)
            case "should_stop":
                while not ctx.should_stop():
                    time.sleep(0.001)
            case "step":
                for n in range(10**9):
                    ctx.step(f"step {n}", time.sleep, 0.02)
    finally:
        note(ctx, "stopped")


@hf.task
async def aattend(ctx: JobContext) -> None:
    note(ctx, "start")
    try:
        await asyncio.sleep(FOREVER)
    finally:
        note(ctx, "stopped")


@hf.task
def count(ctx: JobContext, until: str) -> int:
    """Saves one number after the other, and says in the ledger what it found and which calls have returned."""
    found = (ctx.saved or {"n": 0})["n"]
    note(ctx, f"found:{found}")
    n = found
    while not Path(until).exists():
        n += 1
        ctx.checkpoint({"n": n}, pending=n, done=n)
        note(ctx, f"saved:{n}")
    note(ctx, "end")
    return int(n)


@hf.task
def stride(ctx: JobContext, steps: int) -> list[int]:
    """One step after the other, each leaves a trace when it is run and when it is known to be kept."""

    def effect(n: int) -> int:
        note(ctx, f"effect:{n}")
        time.sleep(0.005)
        return n * n

    note(ctx, "start")
    squares = []
    for n in range(steps):
        squares.append(ctx.step(f"step {n}", effect, n))
        note(ctx, f"kept:{n}")
    note(ctx, "end")
    return squares


def ticking(ctx: JobContext) -> str:
    note(ctx, "start")
    note(ctx, "end")
    return str(ctx.job.tick)


listen(hf)
if CRON := os.environ.get("CRASH_CRON"):
    hf.task(cron=CRON, catch_up="all", max_attempts=20)(ticking)


@hf.task(isolation="process", max_attempts=1)
def attack_alone(ctx: JobContext, how: str) -> None:
    attack(ctx, how, alone=True)


@hf.task(max_attempts=1)
def attack_pooled(ctx: JobContext, how: str) -> None:
    attack(ctx, how, alone=False)
