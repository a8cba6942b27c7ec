"""An application whose tasks ask for processes of their own: the tests enqueue its jobs, those processes import it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier
from typing import Any

from holdfast import Cancel, Holdfast, JobContext, Limits, Secret

hf = Holdfast("sqlite:///never-opened.db")

FOREVER = 600.0  # seconds: longer than any test


def here(path: str) -> None:
    """Tell the test, all at once, which process this is."""
    Path(f"{path}.new").write_text(str(os.getpid()))
    Path(f"{path}.new").rename(path)


@hf.task(isolation="process", env=["ISOLATED_NAMED"])
def look_around(ctx: JobContext) -> dict[str, Any]:
    print("on stdout", flush=True)
    print("on stderr", file=sys.stderr)
    Path(os.environ["TMPDIR"], "scratch").write_text("x")
    return {
        "pid": os.getpid(), "parent": os.getppid(), "group": os.getpgrp(), "env": dict(os.environ),
        "argv": sys.argv, "fence": ctx.fence, "attempt": ctx.attempt,
    }  # fmt: skip


@hf.task(isolation="process", max_attempts=1)
def talk(path: str, word: Secret[str]) -> str:
    print(f"the word is {word}")  # not flushed
    print("on stderr", file=sys.stderr)
    here(path)
    while not Path(f"{path}.go").exists():
        time.sleep(0.02)
    print("the end")
    return "done"


@hf.task(isolation="process", max_attempts=1)
def swap_directory(link_to: str) -> str:
    own = Path(os.environ["TMPDIR"])
    own.rmdir()
    own.symlink_to(link_to)
    return str(own)


@hf.task(isolation="process", max_attempts=1, limits=Limits(cpu=2**61))
def unhurried() -> str:
    return "done"


@hf.task(isolation="process")
async def adouble(n: int) -> int:
    await asyncio.sleep(0)
    return 2 * n


@hf.task
def plain(n: int) -> int:
    return n


@hf.task(isolation="process", retry=0)
def from_checkpoint(ctx: JobContext, here_path: str, go: str) -> Any:
    if ctx.saved is None:
        ctx.progress(3, total=9, note="a third")
        ctx.checkpoint({"seen": 3}, pending=6)
        here(here_path)
        while not Path(go).exists():
            time.sleep(0.01)
        raise ValueError("not yet")
    return ctx.saved


@hf.task(isolation="process", retry=0)
def in_steps(ctx: JobContext) -> tuple[int, int]:
    first = ctx.step("first", os.getpid)
    if ctx.attempt == 1:
        raise ValueError("not yet")
    return first, os.getpid()


@hf.task(isolation="process", max_attempts=2, retry=0)
def in_many_threads(ctx: JobContext, threads: int, size: int) -> list[int]:
    """All of them ask at once, the second time for large answers, and report while they wait."""
    together = Barrier(threads)

    def ask(number: int) -> int:
        together.wait(60)
        ctx.progress(number, total=threads, note="n" * 1000)
        return len(ctx.step(f"large {number}", lambda: "x" * size))

    with ThreadPoolExecutor(threads) as pool:
        sizes = list(pool.map(ask, range(threads)))
    if ctx.attempt == 1:
        raise ValueError("not yet")
    return sizes


@hf.task(isolation="process", max_attempts=1)
def transact(ctx: JobContext) -> None:
    with ctx.transaction() as tx:
        tx.set_result("recorded")


@hf.task(isolation="process", max_attempts=1, database=True)
def transact_with(ctx: JobContext) -> None:
    print("before")
    with ctx.transaction() as tx:
        tx.set_result("recorded")
    print("after")


@hf.task(isolation="process", max_attempts=1)
def enqueue_another() -> str:
    return plain.enqueue(1).id


@hf.task(isolation="process", max_attempts=1, database=True)
def enqueue_another_with() -> str:
    return plain.enqueue(1).id


@hf.task(isolation="process", retry=0)
def crash(ctx: JobContext, how: str) -> None:
    ctx.progress(4, total=10)
    time.sleep(0.6)  # until it was told
    print("about to crash", flush=True)
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.Signals[how])


@hf.task(isolation="process", max_attempts=1, limits=Limits(memory=512 * 2**20))
def hoard() -> int:
    return sum(len(chunk) for chunk in [bytes(2**20) for _ in range(10**5)])


@hf.task(isolation="process", max_attempts=1, timeout=1)
def too_slow(path: str) -> None:
    try:
        here(path)
        time.sleep(FOREVER)
    finally:
        print("cleaned up", flush=True)


@hf.task(isolation="process", max_attempts=1, timeout=1)
async def atoo_slow() -> None:
    try:
        await asyncio.sleep(FOREVER)
    finally:
        print("cleaned up", flush=True)


@hf.task(isolation="process", max_attempts=1, timeout=1)
def stubborn(ctx: JobContext, path: str) -> None:
    """Stops for nobody, and neither does what it starts."""
    ctx.progress(7)
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-Sc", deaf], start_new_session=True, env={})
    Path(f"{path}-child").write_text(str(child.pid))
    here(path)
    while True:
        with suppress(BaseException):
            time.sleep(FOREVER)


obstinate = hf.task(name="obstinate", isolation="process")(stubborn.function)


@hf.task(isolation="process", max_attempts=2, progress_timeout=2, retry=0)
def moves(ctx: JobContext, path: str) -> str:
    if ctx.attempt == 2:
        return "the second time"
    here(path)
    for done in range(10**6):
        ctx.progress(done)
        time.sleep(0.01)
    return "never"


@hf.task(isolation="process")
def deaf(ctx: JobContext, path: str) -> Any:
    """Never looks whether it should stop; a later attempt finds the checkpoint."""
    if ctx.saved is not None:
        return ctx.saved
    ctx.checkpoint("was here")
    here(path)
    time.sleep(FOREVER)
    return None


@hf.task(isolation="process")
def obliging(ctx: JobContext, path: str) -> None:
    here(path)
    while not ctx.should_stop():
        time.sleep(0.01)


@hf.task(isolation="process")
def until(path: str, go: str) -> str:
    here(path)
    while not Path(go).exists():
        time.sleep(0.01)
    return "done"


@hf.task(isolation="process", max_attempts=1)
def meddle() -> None:
    """Finds the line to the worker, and writes nonsense to it."""
    os.write(int(sys.argv[1]), b"\xff" * 100)
    time.sleep(FOREVER)


@hf.task(isolation="process", max_attempts=1)
def tell(password: Secret[str]) -> None:
    print(f"it is {password}; DATABASE postgresql://u:{password}@h/d")
    raise Cancel("told")


@hf.task(isolation="process", max_attempts=1, timeout=1)
def babble() -> None:
    subprocess.run(["yes"], check=False)


@hf.task(isolation="process")
def chatter() -> None:
    for n in range(100_000):
        print("line", n)
