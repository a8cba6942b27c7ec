"""What a process of ours does first of all, before anything of the user's is imported: tie its life to its parent's,
give up rights, take on limits. Not done between fork and exec by the parent (preexec_fn): that is not safe where
threads run."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

import msgspec

from holdfast.model.limits import NO_LIMITS, Limits
from holdfast.runners.kernel import NO_NEW_PRIVS, PDEATHSIG, prctl
from holdfast.runners.reaper import RLIMIT_LOCKS
from holdfast.signals import stop_signals

CPU_GRACE = 5  # seconds of CPU time after SIGXCPU until the kernel sends SIGKILL
FOR_EVER = 10**9  # seconds


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a child is to hold to. Travels as JSON, as an argument of its program."""

    parent: int  # the pid of who starts it; 0: it may outlive it
    no_new_privs: bool = False
    umask: int | None = None
    limits: Limits = NO_LIMITS
    mark: int = 0  # carried by it and by all that descend from it (see reaper.py)

    def __str__(self) -> str:
        return msgspec.json.encode(self).decode()


def settle(terms: Terms | str) -> None:
    """Take on these terms. Where the system has no such thing (elsewhere than on Linux: parent's death, new privileges)
    it is left out. Ends the process at once if its parent has died meanwhile."""
    if isinstance(terms, str):
        terms = msgspec.json.decode(terms, type=Terms)
    if terms.parent:
        # The kernel's SIGKILL comes when the *thread* that started us ends, so spawn.py asks for one that stays.
        prctl(PDEATHSIG, signal.SIGKILL)
        if os.getppid() != terms.parent:
            os.kill(os.getpid(), signal.SIGKILL)  # it died before we asked
    if terms.no_new_privs:
        prctl(NO_NEW_PRIVS, 1)
    if terms.umask is not None:
        os.umask(terms.umask)
    _limit(terms)


def leave(code: int) -> NoReturn:
    """End the program. Threads that can't be stopped must not keep us: everything that counts has been sent."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def leave_signals_to_the_worker() -> None:
    """Who stops a service may signal all of its processes: when we end is for our worker to say. (Not SIG_IGN: programs
    that handlers start would inherit it. Where it is that already, they are to outlive the terminal.)"""
    for number in stop_signals():
        signal.signal(number, lambda *_: None)


def forks_are_no_runners(line: int) -> None:
    """What a handler forks (multiprocessing, say) is a program like any other: signals end it, and it does not keep
    our line."""

    def forked() -> None:
        for number in stop_signals():
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with suppress(OSError):
            os.close(line)

    os.register_at_fork(after_in_child=forked)


def _limit(terms: Terms) -> None:
    try:
        import resource
    except ImportError:
        return
    limits = terms.limits
    _lower(resource, "RLIMIT_CORE", 0)  # the memory of a process is full of secrets
    _lower(resource, "RLIMIT_NOFILE", limits.files)
    _lower(resource, "RLIMIT_FSIZE", limits.file_size)
    if limits.cpu is not None:  # at the first SIGXCPU, which tells why; then SIGKILL
        _lower(resource, "RLIMIT_CPU", min(int(-(-limits.cpu // 1)), FOR_EVER), CPU_GRACE)
    if terms.mark and sys.platform.startswith("linux"):
        # Lower already, or a sandbox that lets nobody set it: then the environment's mark has to do.
        with suppress(ValueError, OSError):
            resource.setrlimit(RLIMIT_LOCKS, (terms.mark, terms.mark))
    _lower(resource, "RLIMIT_AS", limits.memory)


def _lower(resource: Any, name: str, value: int | None, more: int = 0) -> None:
    kind = getattr(resource, name, None)
    if value is None or kind is None:
        return
    _, hard = resource.getrlimit(kind)
    most = value + more if hard == resource.RLIM_INFINITY else min(value + more, hard)
    resource.setrlimit(kind, (min(value, most), most))
