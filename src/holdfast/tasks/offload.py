"""Runs blocking store calls for coroutines. Not on asyncio's default executor: on SQLite a call may wait at the gate,
while whoever holds the gate needs a thread of that executor to go on. So each store has threads of its own; and the end
of a transaction does not depend on these either: it gets a new thread."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from concurrent.futures import Executor

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")

THREADS = min(32, (os.cpu_count() or 1) + 4)  # of a store, at most: as many as asyncio's own executor has
LONG_THREADS = 8  # the same for calls that take long: each has a connection to the database meanwhile
_executors: WeakKeyDictionary[object, Executor] = WeakKeyDictionary()
_long_executors: WeakKeyDictionary[object, Executor] = WeakKeyDictionary()
for _kept in (_executors, _long_executors):
    os.register_at_fork(after_in_child=_kept.clear)  # a forked child has none of its parent's threads

# (asyncio is imported where it is needed: that takes as long as all of Holdfast.)


async def in_thread(store: object, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call to this store on one of its threads; first come, first served. The call of a coroutine that is
    cancelled before it began is dropped."""
    return await _on(_executors, THREADS, store, partial(call, *args, **kwargs))


async def in_long_thread(store: object, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The same for a call that may take minutes, so that short ones need not wait for it."""
    return await _on(_long_executors, LONG_THREADS, store, partial(call, *args, **kwargs))


async def _on(executors: WeakKeyDictionary[object, Executor], threads: int, store: object, call: Callable[[], T]) -> T:
    import asyncio

    executor = executors.get(store)
    if executor is None:
        from concurrent.futures import ThreadPoolExecutor

        # (Two loops may come here at once: one executor of the two is kept.)
        executor = executors.setdefault(store, ThreadPoolExecutor(threads, "holdfast-call"))
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(executor, partial(copy_context().run, call))


def twin(verb: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The asynchronous twin of a method of Holdfast or Job: the same call, on a thread. `acancel = twin(cancel)`."""
    name = verb.__name__

    @wraps(verb)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        app = getattr(self, "_app", self)
        method: Callable[P, T] = getattr(self, name)
        return await in_thread(app, method, *args, **kwargs)

    call.__name__ = f"a{name}"
    call.__qualname__ = f"{verb.__qualname__.removesuffix(name)}a{name}"
    call.__doc__ = f"`{name}` without blocking the event loop. {verb.__doc__}"
    return call


def notice_loop(policy: str) -> None:
    """Called where a verb is about to wait for the database: complain if an event loop stands still meanwhile."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or policy == "allow":  # who has a loop has imported it
        return
    running = getattr(asyncio, "_get_running_loop", None)  # None: another thread is importing it
    if running is not None and running() is not None:
        _complain(policy)


def _complain(policy: str) -> None:
    verb, frame = None, sys._getframe(2)
    while frame.f_back is not None and (name := frame.f_globals.get("__name__", "")).startswith("holdfast."):
        if name.startswith("holdfast.testing"):
            return  # a test looks at its own store
        verb, frame = frame, frame.f_back
    if verb is None:
        return
    # (Operators' verbs are functions of an `app`, which Holdfast has as methods.)
    owner, name = type(verb.f_locals.get("self", verb.f_locals.get("app"))), verb.f_code.co_name
    twin = {"wait": "await_", "__iter__": "__aiter__"}.get(name, f"a{name}")
    if not hasattr(owner, twin):
        return  # there is no other way to do it
    what, instead = {
        "await_": ("wait", "write `await job`"), "__aiter__": ("updates", "write `async for`"),
    }.get(twin, (name, f"await {twin}(…)"))  # fmt: skip
    text = f"{what}() blocks the event loop while it waits for the database; {instead} instead"
    if policy == "error":
        raise HoldfastError(text, number="HF1317")
    warnings.warn_explicit(  # shown once for each place in the caller's code
        text, RuntimeWarning, frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__"),
        frame.f_globals.setdefault("__warningregistry__", {}),
    )  # fmt: skip


async def at_once(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call on a thread of its own, without queueing. The call is made whatever happens to the coroutine, which
    continues when it is done."""
    import asyncio

    done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    run = partial(copy_context().run, _run, partial(call, *args, **kwargs), done)
    try:
        threading.Thread(target=run, name="holdfast-call-now").start()
    except RuntimeError:  # the system has no more threads
        run()
    return await through(done)


def _run(call: Callable[[], Any], done: Any) -> None:
    try:
        value, error = call(), None
    except BaseException as raised:  # noqa: BLE001 - it is raised where the call is awaited
        value, error = None, raised

    def deliver() -> None:
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)

    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        done.get_loop().call_soon_threadsafe(deliver)


async def through(awaitable: Awaitable[T]) -> T:
    """Await this to its end, even if cancelled meanwhile; the cancellation takes effect afterwards."""
    import asyncio

    future = asyncio.ensure_future(awaitable)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():  # it may be cancelled more than once
            with suppress(asyncio.CancelledError):
                await asyncio.shield(future)
        future.result()
        raise
