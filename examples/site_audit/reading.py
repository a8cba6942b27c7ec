"""Reads pages in a process of its own. What strangers write into a page can keep a parser busy for hours, or make it
take all memory: a few thousand bytes are enough, and no look at the text tells them all. So that process has limits,
and a page that makes it run into them is refused."""

from __future__ import annotations

import atexit
import pickle
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import httpx2
import msgspec
from selectolax.lexbor import SelectolaxError

from examples.safe_http import Refused, Reply
from examples.site_audit.page import Page, files_of, names_of
from examples.site_audit.tier import Tier, static_tier

LONGEST = 10.0  # seconds of work for one page
MOST_MEMORY = 2**30  # bytes
OUT_OF_MEMORY = 3  # our exit status
T = TypeVar("T")
# How it ends if the limits end it: the time, our own word, and the parser where it does not get what it asked for.
LIMITS = (-signal.SIGPROF, OUT_OF_MEMORY, -signal.SIGSEGV, -signal.SIGABRT)


class Reader:
    """One process for all threads, begun when it is needed first. It ends with ours."""

    def __init__(self, longest: float = LONGEST, most_memory: int = MOST_MEMORY) -> None:
        self._limits = (longest, most_memory)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def files(self, reply: Reply) -> list[tuple[str, str]]:
        return self._ask(list[tuple[str, str]], files_of, reply)

    def names(self, reply: Reply, site: httpx2.URL) -> list[str]:
        return self._ask(list[str], names_of, reply, site)

    def tier(self, page: Page) -> Tier:
        return self._ask(Tier, static_tier, page)

    def _ask(self, kind: type[T], function: Callable[..., Any], *arguments: Any) -> T:
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            with suppress(BrokenPipeError):  # then there is no answer, either
                pickle.dump((function, arguments), process.stdin)
                process.stdin.flush()
            answer = process.stdout.readline()
            if answer.endswith(b"\n"):
                return msgspec.json.decode(answer, type=kind)
            status = process.wait()
        if status in LIMITS:
            seconds, memory = self._limits
            raise Refused(
                "TOO_COMPLEX", f"it takes more than {seconds:g} s or {memory / 2**20:,.0f} MiB to read the page"
            )
        raise RuntimeError(f"what reads pages ended with {status}")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(  # noqa: S603 - our own
                [sys.executable, "-m", "examples.site_audit.reading", *map(str, self._limits)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


READER = Reader()
atexit.register(READER.close)


def main(longest: float, most_memory: int) -> None:
    """Until nobody asks any more."""
    resource.setrlimit(resource.RLIMIT_AS, (most_memory, most_memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(EOFError, pickle.UnpicklingError, BrokenPipeError):  # who started us has ended
        while True:
            function, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301 - from who started us
            signal.setitimer(signal.ITIMER_PROF, longest)
            try:
                answer = msgspec.json.encode(function(*arguments))
            except (MemoryError, SelectolaxError):
                sys.exit(OUT_OF_MEMORY)
            signal.setitimer(signal.ITIMER_PROF, 0)
            sys.stdout.buffer.write(answer + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
