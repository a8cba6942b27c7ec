"""What a child process does first of all, before it imports any user code: tie its life to its parent's, give up
privileges, set limits. The parent does not do this between fork and exec (preexec_fn), which is not safe with
threads."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

from holdfast.model.isolation import NO_LIMITS, Limits
from holdfast.runners.linux import NO_NEW_PRIVS, PDEATHSIG, prctl
from holdfast.runners.reaper import RLIMIT_LOCKS
from holdfast.signals import stop_signals

CPU_GRACE = 5  # seconds of CPU time after SIGXCPU until the kernel sends SIGKILL
FOR_EVER = 10**9  # seconds


class ChildSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What the child sets up. Passed as JSON, as an argument of its program."""

    parent: int  # the pid of the process that starts it; 0: it may outlive that
    no_new_privs: bool = False
    umask: int | None = None
    limits: Limits = NO_LIMITS
    mark: int = 0  # inherited by everything that descends from it (see reaper.py)

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode()


def set_up(setup: ChildSetup | str) -> None:
    """Set this process up. What a system does not have is left out (parent death signals and new privileges are Linux
    only). Ends the process at once if its parent has died meanwhile."""
    if isinstance(setup, str):
        setup = msgspec.json.decode(setup, type=ChildSetup)
    if setup.parent:
        # The kernel sends SIGKILL when the *thread* that started us ends, so spawn.py must be called on one that stays.
        prctl(PDEATHSIG, signal.SIGKILL)
        if os.getppid() != setup.parent:
            os.kill(os.getpid(), signal.SIGKILL)  # it died before we asked
    if setup.no_new_privs:
        prctl(NO_NEW_PRIVS, 1)
    if setup.umask is not None:
        os.umask(setup.umask)
    _set_limits(setup)


def leave(code: int) -> NoReturn:
    """End the program. Threads that can't be stopped must not keep it alive: everything that counts has been sent."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def leave_signals_to_the_worker() -> None:
    """Whoever stops a service may signal all of its processes, but the worker decides when this one ends. (Not by
    SIG_IGN, which programs that handlers start would inherit. Where a signal is ignored already, they are meant to
    outlive the terminal.)"""
    for number in stop_signals():
        signal.signal(number, lambda *_: None)


def forks_are_no_runners(connection: int) -> None:
    """What a handler forks (by multiprocessing, say) is an ordinary program: signals end it, and it does not keep the
    connection to the worker open."""

    def forked() -> None:
        for number in stop_signals():
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with suppress(OSError):
            os.close(connection)

    os.register_at_fork(after_in_child=forked)


def _set_limits(setup: ChildSetup) -> None:
    try:
        import resource
    except ImportError:
        return
    limits = setup.limits
    _lower(resource, "RLIMIT_CORE", 0)  # the memory of a process is full of secrets
    _lower(resource, "RLIMIT_NOFILE", limits.files)
    _lower(resource, "RLIMIT_FSIZE", limits.file_size)
    if limits.cpu is not None:  # SIGXCPU first, which says why; then SIGKILL
        _lower(resource, "RLIMIT_CPU", min(int(-(-limits.cpu // 1)), FOR_EVER), CPU_GRACE)
    if setup.mark and sys.platform.startswith("linux"):
        # The limit may be lower already, or a sandbox may forbid setting it: then the mark in the environment must do.
        with suppress(ValueError, OSError):
            resource.setrlimit(RLIMIT_LOCKS, (setup.mark, setup.mark))
    _lower(resource, "RLIMIT_AS", limits.memory)


def _lower(resource: Any, name: str, value: int | None, more: int = 0) -> None:
    kind = getattr(resource, name, None)
    if value is None or kind is None:
        return
    _, hard = resource.getrlimit(kind)
    most = value + more if hard == resource.RLIM_INFINITY else min(value + more, hard)
    resource.setrlimit(kind, (min(value, most), most))
