"""Takes the stack of a running handler from another thread: of the thread it runs on, or of a coroutine and the tasks
it started, each down to its innermost await. Names, lines and source, never the values of variables.

Nothing is stopped for it. The code may move on while we read frame after frame: then we read again, and the last
reading counts."""

from __future__ import annotations

import gc
import linecache
import os
import selectors
import sys
import threading
import traceback
from collections.abc import Iterator
from contextvars import Context
from itertools import islice
from pathlib import Path
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, GeneratorType
from typing import TYPE_CHECKING, Any

from holdfast.model.stack import Taken
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.current import current_context

if TYPE_CHECKING:
    import asyncio

_PACKAGE = Path(__file__).parent.parent
OURS = tuple(str(_PACKAGE / name) for name in ("runners", "tasks"))  # what calls handlers: left out before their frames
DEEPEST = 200  # frames of one stack
TRIES = 5  # to find a loop running one task while we look at it
MOST_TASKS = 20  # of one handler that are shown
READINGS = 3

CodeLine = tuple[CodeType, int]  # a function, and the line it is at

# What calls handlers and coroutines, and where a loop waits for events.
MACHINERY = (*OURS, str(Path(threading.__file__).parent / "asyncio"), threading.__file__, selectors.__file__)


def not_running(attempt: Attempt) -> str:
    """The answer for an attempt that no runner is running right now."""
    why = "Its handler has ended." if attempt.ended else "It has not begun: it waits in its worker for a free slot."
    return Taken(os.getpid(), "", why + "\n").encoded()


def no_stack(error: Exception) -> str:
    """The answer if a stack could not be taken."""
    return Taken(os.getpid(), "", f"Its stack could not be taken: {type(error).__name__}.\n").encoded()


def of_thread(ident: int) -> str | None:
    """Where a thread is, from its handler on. None: there is no such thread."""
    lines = thread_lines(ident)
    return None if lines is None else formatted(_from_handler(lines))


def thread_lines(ident: int) -> list[CodeLine] | None:
    """Where a thread is, the outermost call first."""
    for _ in range(READINGS):
        frame = sys._current_frames().get(ident)
        if frame is None:
            return None
        lines = list(islice(_outwards(frame), 100_000))
        if lines[-1][0].co_name == "_bootstrap":  # down to where threads begin: nothing moved on meanwhile
            break
    return lines[::-1]


def _outwards(frame: FrameType | None) -> Iterator[CodeLine]:
    while frame is not None:
        yield frame.f_code, frame.f_lineno or frame.f_code.co_firstlineno
        frame = frame.f_back


def of_coroutine(task: asyncio.Task[Any], loop: asyncio.AbstractEventLoop, thread: int, attempt: Attempt) -> str:
    """Where a handler's coroutine is, where the tasks are that it started, and what the loop does right now."""
    import asyncio

    mine = [task, *_started_by(attempt, task, loop)]
    for _ in range(TRIES):
        running = asyncio.current_task(loop)
        now = thread_lines(thread) or []
        if asyncio.current_task(loop) is running:  # otherwise it moved on between the two
            break
    parts = []
    for one in mine[:MOST_TASKS]:
        title = "" if one is task else f"its task {one.get_name()}:\n"
        if one is running:
            parts.append(
                f"{title}{formatted(_from_handler(now))}It runs just now, and the loop with all else on it waits.\n"
            )
        else:
            parts.append(title + formatted(_from_handler(list(_awaiting(one.get_coro())))))
    if len(mine) > MOST_TASKS:
        parts.append(f"… and {len(mine) - MOST_TASKS} more tasks\n")
    if running is None and all(_machinery(code) for code, _ in now):
        parts.append("The loop waits for events.\n")
    elif running not in mine:
        parts.append(f"The loop runs {_whose(running)} just now:\n{formatted(_from_handler(now))}")
    return "\n".join(parts)


def _started_by(attempt: Attempt, task: asyncio.Task[Any], loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]]:
    """The tasks that a handler's task started: they inherit its context variables. Sorted by name."""
    import asyncio

    mine, id = [], str(attempt.held.id)
    for other in asyncio.all_tasks(loop):
        context = _context_of(other)
        known = None if context is None else context.get(current_context)
        if other is not task and known is not None and (known.job.id, known.fence) == (id, attempt.held.fence):
            mine.append(other)
    return sorted(mine, key=lambda one: (len(one.get_name()), one.get_name()))


def _whose(task: asyncio.Task[Any] | None) -> str:
    context = None if task is None else _context_of(task)
    known = None if context is None else context.get(current_context)
    return "something else" if known is None else f"job {known.job.id} ({known.job.task})"


def _context_of(task: asyncio.Task[Any]) -> Context | None:
    if sys.version_info >= (3, 12):
        return task.get_context()
    return next((part for part in gc.get_referents(task) if isinstance(part, Context)), None)


def _awaiting(awaited: Any) -> Iterator[CodeLine]:
    """Follow the awaits of a coroutine that is not running, from the outermost to the innermost."""
    for _ in range(100_000):
        match awaited:
            case CoroutineType():
                frame, awaited = awaited.cr_frame, awaited.cr_await
            case GeneratorType():
                frame, awaited = awaited.gi_frame, awaited.gi_yieldfrom
            case AsyncGeneratorType():
                frame, awaited = awaited.ag_frame, awaited.ag_await
            case _:
                # `async for` and `__await__` use objects that hold what is awaited, without an attribute for it.
                awaited = _behind(awaited)
                if awaited is None:
                    return
                continue
        if frame is not None:
            yield frame.f_code, frame.f_lineno or frame.f_code.co_firstlineno


def _behind(awaited: Any) -> Any:
    if type(awaited).__name__ not in ("async_generator_asend", "async_generator_athrow", "coroutine_wrapper"):
        return None
    held = gc.get_referents(awaited)
    return next((part for part in held if isinstance(part, AsyncGeneratorType | CoroutineType)), None)


def _from_handler(lines: list[CodeLine]) -> list[CodeLine]:
    """Without the frames of what calls it. (All, if there are no others.)"""
    for number, (code, _) in enumerate(lines):
        if not _machinery(code):
            return lines[number:]
    return lines


def _machinery(code: CodeType) -> bool:
    return code.co_filename.startswith(MACHINERY)


def formatted(lines: list[CodeLine]) -> str:
    """As in a traceback. Of a very deep stack both ends."""
    left_out = len(lines) - DEEPEST
    outer, inner = (lines, []) if left_out <= 0 else (lines[: DEEPEST // 4], lines[left_out + DEEPEST // 4 :])
    text = _formatted(outer)
    if inner:
        text += [f"  … {left_out} more calls …\n", *_formatted(inner)]
    return "".join(text)


def _formatted(lines: list[CodeLine]) -> list[str]:
    for name in {code.co_filename for code, _ in lines}:
        linecache.checkcache(name)
    # Passed as plain values, so that nothing is read from the frames, variables least of all.
    frames = [traceback.FrameSummary(code.co_filename, line, code.co_qualname) for code, line in lines]
    return traceback.StackSummary.from_list(frames).format()
