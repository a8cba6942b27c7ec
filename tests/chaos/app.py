"""The application under load: tasks of every kind. Handlers leave a line in a file for whatever they do, and rows in a
ledger for what they commit with their success; the checker reads both."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from holdfast import Cancel, Fail, Holdfast, JobContext, Retry, Snooze

hf = Holdfast()

HOME = Path(os.environ.get("CHAOS_HOME", "."))
SQLITE = hf.settings.url.startswith("sqlite")
MARK = "?" if SQLITE else "%s"
LEDGER = f"insert into chaos_ledger (job, fence, attempt, token) values ({', '.join([MARK] * 4)})"
LONE: dict[str, Any] = {"isolation": "process", "env": ["CHAOS_HOME"]}
DRIVER_ERRORS = (OSError, sqlite3.Error, psycopg.Error)
SOON = 0.3  # seconds before another attempt


class Planned(Exception):
    """What a handler raises because the load wants it to."""


def note(ctx: JobContext, what: str, *, sync: bool = False, **more: Any) -> None:
    """One line, written at once. It begins with an end of line: whoever was killed while writing left half of one."""
    told = {"what": what, "job": ctx.job.id, "fence": ctx.fence, "attempt": ctx.attempt, "task": ctx.job.task}
    line = json.dumps({**told, "pid": os.getpid(), "at": time.time(), **more})
    file = os.open(HOME / "effects.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"\n{line}\n".encode())
        if sync:
            os.fsync(file)
    finally:
        os.close(file)


def begin(ctx: JobContext, **more: Any) -> None:
    note(ctx, "begin", **more)


def end(ctx: JobContext) -> None:
    note(ctx, "end")


# -- plain -------------------------------------------------------------------------------------------------------


@hf.task
def quick(ctx: JobContext, token: str) -> str:
    begin(ctx)
    end(ctx)
    return token


@hf.task
async def aquick(ctx: JobContext, token: str) -> str:
    begin(ctx)
    end(ctx)
    return token


@hf.task
def nap(ctx: JobContext, token: str, seconds: float) -> str:
    begin(ctx)
    time.sleep(seconds)
    end(ctx)
    return token


@hf.task
async def doze(ctx: JobContext, token: str, seconds: float) -> str:
    begin(ctx)
    await asyncio.sleep(seconds)
    end(ctx)
    return token


@hf.task
def busy(ctx: JobContext, token: str) -> str:
    """Holds the interpreter's lock in one long call."""
    begin(ctx)
    sum(range(20_000_000))
    end(ctx)
    return token


@hf.task
def outside(ctx: JobContext, token: str) -> str:
    begin(ctx)
    note(ctx, "effect", sync=True)
    end(ctx)
    return token


@hf.task
async def aoutside(ctx: JobContext, token: str) -> str:
    begin(ctx)
    await asyncio.to_thread(note, ctx, "effect", sync=True)
    end(ctx)
    return token


# -- success and effect in one commit ----------------------------------------------------------------------------


def write_ledger(ctx: JobContext, conn: Any, token: str) -> None:
    conn.execute(LEDGER, (ctx.job.id, ctx.fence, ctx.attempt, token))


@hf.task
def ledger(ctx: JobContext, token: str) -> None:
    begin(ctx)
    with ctx.transaction() as tx:
        write_ledger(ctx, tx.conn, token)
        end(ctx)


@hf.task
async def aledger(ctx: JobContext, token: str, seconds: float) -> None:
    begin(ctx)
    async with ctx.transaction() as tx:
        write_ledger(ctx, tx.conn, token)
        await asyncio.sleep(seconds)
        end(ctx)


@hf.task(max_attempts=1)
def once_ledger(ctx: JobContext, token: str) -> None:
    """One attempt is all it has, so nothing but a crash of its own may be charged to it."""
    begin(ctx)
    with ctx.transaction() as tx:
        write_ledger(ctx, tx.conn, token)
        end(ctx)


@hf.task(retry=SOON, max_attempts=20)
def own_ledger(ctx: JobContext, token: str) -> None:
    """On a connection of its own. What that one meets is charged, as any error of a handler's."""
    begin(ctx)
    try:
        with closing(own_connection()) as conn:
            write_ledger(ctx, conn, token)
            end(ctx)
            ctx.succeed(token, conn=conn)
            conn.commit()
    except DRIVER_ERRORS as error:
        raise Retry(f"its own connection: {error}", after=SOON) from None


@hf.task
def late_ledger(ctx: JobContext, token: str, seconds: float) -> None:
    """Long enough to lose its lease before it writes."""
    begin(ctx)
    time.sleep(seconds)
    with ctx.transaction() as tx:
        write_ledger(ctx, tx.conn, token)
        end(ctx)


@hf.task(max_attempts=1)
def forgetful(ctx: JobContext, token: str) -> None:
    """Tells its success on a transaction that it never commits."""
    begin(ctx)
    try:
        with closing(own_connection()) as conn:
            ctx.succeed(token, conn=conn)
    except DRIVER_ERRORS as error:
        raise Fail(f"its own connection: {error}", code="NO_USE") from None


def own_connection() -> Any:
    if SQLITE:
        return sqlite3.connect(hf.settings.url.removeprefix("sqlite:///"), timeout=30)
    return psycopg.connect(hf.settings.url)


# -- in a process of its own -------------------------------------------------------------------------------------


@hf.task(**LONE)
def lone(ctx: JobContext, token: str, seconds: float) -> str:
    begin(ctx)
    time.sleep(seconds)
    end(ctx)
    return token


@hf.task(**LONE)
async def alone_async(ctx: JobContext, token: str, seconds: float) -> str:
    begin(ctx)
    await asyncio.sleep(seconds)
    end(ctx)
    return token


@hf.task(**LONE, database=True)
def lone_ledger(ctx: JobContext, token: str) -> None:
    begin(ctx)
    with ctx.transaction() as tx:
        write_ledger(ctx, tx.conn, token)
        end(ctx)


@hf.task(**LONE)
def lone_checkpoints(ctx: JobContext, token: str, count: int, seconds: float) -> str:
    save_all(ctx, count, seconds)
    end(ctx)
    return token


@hf.task(**LONE, max_attempts=8, retry=SOON)
def lone_flaky(ctx: JobContext, token: str, seconds: float) -> str:
    begin(ctx)
    time.sleep(seconds)
    if ctx.attempt < 4:
        raise Planned(f"attempt {ctx.attempt} of 3 that fail")
    end(ctx)
    return token


@hf.task(**LONE, timeout=0.5, max_attempts=2, retry=SOON)
def lone_slow(ctx: JobContext, token: str) -> str:
    begin(ctx)
    time.sleep(60)
    return token


# -- steps and checkpoints ---------------------------------------------------------------------------------------


@hf.task
def steps(ctx: JobContext, token: str, seconds: float) -> str:
    begin(ctx)
    for name in ("one", "two", "three"):
        ctx.step(name, one_step, ctx, name, seconds, time.time())
    end(ctx)
    return token


def one_step(ctx: JobContext, name: str, seconds: float, asked: float) -> str:
    note(ctx, "step", name=name, asked=asked)
    time.sleep(seconds)
    return ctx.fence


@hf.task
async def asteps(ctx: JobContext, token: str, seconds: float) -> str:
    begin(ctx)
    for name in ("one", "two", "three"):
        await ctx.astep(name, one_async_step, ctx, name, seconds, time.time())
    end(ctx)
    return token


async def one_async_step(ctx: JobContext, name: str, seconds: float, asked: float) -> str:
    note(ctx, "step", name=name, asked=asked)
    await asyncio.sleep(seconds)
    return ctx.fence


def save_all(ctx: JobContext, count: int, seconds: float) -> None:
    start = ctx.saved or 0
    begin(ctx, saved=start)
    for number in range(start + 1, count + 1):
        asked = time.time()
        ctx.checkpoint(number, pending=count - number)
        note(ctx, "kept", number=number, asked=asked)
        time.sleep(seconds)


@hf.task
def checkpoints(ctx: JobContext, token: str, count: int, seconds: float) -> str:
    save_all(ctx, count, seconds)
    end(ctx)
    return token


@hf.task
async def acheckpoints(ctx: JobContext, token: str, count: int, seconds: float) -> str:
    start = ctx.saved or 0
    begin(ctx, saved=start)
    for number in range(start + 1, count + 1):
        asked = time.time()
        await ctx.acheckpoint(number, pending=count - number)
        note(ctx, "kept", number=number, asked=asked)
        await asyncio.sleep(seconds)
    end(ctx)
    return token


# -- jobs that enqueue -------------------------------------------------------------------------------------------


@hf.task
def child(ctx: JobContext, token: str) -> str:
    begin(ctx)
    end(ctx)
    return token


@hf.task
def parent(ctx: JobContext, token: str) -> None:
    """Its child exists if, and only if, it has succeeded."""
    begin(ctx)
    with ctx.transaction() as tx:
        write_ledger(ctx, tx.conn, token)
        child.using(conn=tx.conn).enqueue(f"{token}/child")
        end(ctx)


@hf.task
def enqueuer(ctx: JobContext, token: str) -> str:
    begin(ctx)
    job = child.enqueue(f"{token}/{ctx.fence}")
    note(ctx, "enqueued", child=job.id, token=f"{token}/{ctx.fence}")
    end(ctx)
    return token


# -- errors ------------------------------------------------------------------------------------------------------


@hf.task(retry=SOON, max_attempts=6)
def flaky(ctx: JobContext, token: str, failures: int) -> str:
    begin(ctx)
    if ctx.attempt <= failures:
        raise Planned(f"attempt {ctx.attempt} of {failures} that fail")
    end(ctx)
    return token


@hf.task(max_attempts=5)
async def again(ctx: JobContext, token: str) -> str:
    begin(ctx)
    if ctx.attempt == 1:
        raise Retry("once more", after=SOON)
    end(ctx)
    return token


@hf.task(retry=SOON, max_attempts=2)
def exhausted(ctx: JobContext, token: str) -> str:
    begin(ctx)
    raise Planned("every time")


@hf.task
def hopeless(ctx: JobContext, token: str) -> str:
    begin(ctx)
    raise Fail("it will never work", code="NO_USE")


@hf.task
def resigned(ctx: JobContext, token: str) -> str:
    begin(ctx)
    raise Cancel("no longer wanted")


@hf.task
def snoozer(ctx: JobContext, token: str) -> str:
    begin(ctx, saved=ctx.saved or 0)
    if not ctx.saved:
        asked = time.time()
        ctx.checkpoint(1)
        note(ctx, "kept", number=1, asked=asked)
        raise Snooze(0.5)
    end(ctx)
    return token


# Long enough to lose its lease, or to be asked something, before it ends: a task for each way to end.


@hf.task
def late(ctx: JobContext, token: str, seconds: float) -> str:
    begin(ctx)
    time.sleep(seconds)
    end(ctx)
    return token


@hf.task
def late_snooze(ctx: JobContext, token: str, seconds: float) -> str:
    begin(ctx)
    before = ctx.saved
    if not before:
        ctx.checkpoint(1)
    time.sleep(seconds)
    if not before:
        raise Snooze(SOON)
    end(ctx)
    return token


@hf.task(retry=SOON)
def late_retry(ctx: JobContext, token: str, seconds: float) -> str:
    begin(ctx)
    time.sleep(seconds)
    if ctx.attempt == 1:
        raise Planned("the first time")
    end(ctx)
    return token


@hf.task
def late_fail(ctx: JobContext, token: str, seconds: float) -> None:
    begin(ctx)
    time.sleep(seconds)
    raise Fail("it will never work", code="NO_USE")


@hf.task
def late_cancel(ctx: JobContext, token: str, seconds: float) -> None:
    begin(ctx)
    time.sleep(seconds)
    raise Cancel("no longer wanted")


@hf.task(timeout=0.4, max_attempts=2, retry=SOON)
async def slow(ctx: JobContext, token: str) -> str:
    begin(ctx)
    await asyncio.sleep(60)
    return token


@hf.task
def spawner(ctx: JobContext, token: str, seconds: float) -> str:
    """Starts a program that would run on for a minute, and ends it."""
    begin(ctx)
    program = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL)
    note(ctx, "program", program=program.pid)
    try:
        time.sleep(seconds)
    finally:
        program.kill()
        program.wait()
    end(ctx)
    return token


# -- jobs that people steer, that wait, that expire --------------------------------------------------------------


@hf.task
def keyed(ctx: JobContext, token: str, seconds: float) -> str:
    begin(ctx)
    time.sleep(seconds)
    end(ctx)
    return token


@hf.task
def expiring(ctx: JobContext, token: str) -> str:
    begin(ctx)
    end(ctx)
    return token


@hf.task
def long(ctx: JobContext, token: str, count: int) -> str:
    begin(ctx)
    for _ in ctx.track(range(count)):
        time.sleep(0.1)
    end(ctx)
    return token


@hf.task
async def along(ctx: JobContext, token: str, count: int) -> str:
    begin(ctx)
    for _ in ctx.track(range(count)):
        await asyncio.sleep(0.1)
    end(ctx)
    return token


@hf.task(cron="*/5 * * * * *")
def tick(ctx: JobContext) -> None:
    begin(ctx, tick=str(ctx.job.tick))
    end(ctx)


# -- poison ------------------------------------------------------------------------------------------------------


@hf.task(max_attempts=6)
def poison_exit(ctx: JobContext, token: str) -> str:
    begin(ctx)
    os._exit(3)


@hf.task(max_attempts=6)
def poison_segv(ctx: JobContext, token: str) -> str:
    begin(ctx)
    ctypes.string_at(0)
    return token


@hf.task
async def poison_kill(ctx: JobContext, token: str) -> str:
    begin(ctx)
    os.kill(os.getpid(), signal.SIGKILL)
    return token


@hf.task(**LONE)
def lone_poison(ctx: JobContext, token: str) -> str:
    begin(ctx)
    os.kill(os.getpid(), signal.SIGKILL)
    return token
