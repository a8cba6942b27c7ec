"""How a process ended, and how that is described."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from holdfast.model.isolation import NO_LIMITS, Limits

# What programs print when they can't get memory: Python, C++, the C library, a Python that can't even print that.
NO_MEMORY = re.compile(r"MemoryError|bad_alloc|[Cc]annot allocate memory|out of memory")
LAST_WORDS = 2_000  # characters of output that are searched for it


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """`code` is as Python has it: the exit status, or minus the signal that ended the process; None: unknown."""

    code: int | None
    limits: Limits = NO_LIMITS
    killed: bool = False  # by us
    memory_ran_out: str | None = None  # where the kernel counted a kill for want of memory: container, machine
    memory: int = 0  # bytes of RAM at most
    cpu: float = 0.0  # seconds

    @property
    def clean(self) -> bool:
        return self.code == 0

    def described(self, output: str = "") -> str:
        """The end of a sentence: "exited with status 3", "was ended by SIGSEGV". `output`: what it printed."""
        why = self._why(output[-LAST_WORDS:])
        return f"{self}{f' ({why})' if why else ''}"

    def _why(self, last_words: str) -> str | None:
        limits = self.limits
        if self.memory_ran_out is not None:
            return f"probably out of memory: the kernel killed a process of this {self.memory_ran_out}"
        if self.killed or self.clean:
            return None
        killed_late = self.code == -signal.SIGKILL and limits.cpu is not None and self.cpu > limits.cpu
        if limits.cpu is not None and (self.code == -signal.SIGXCPU or killed_late):
            return f"it used up its limit of {limits.cpu:g} s of CPU time"
        if self.code == -signal.SIGXFSZ and limits.file_size is not None:
            return f"it wrote a file beyond its limit of {limits.file_size} bytes"
        if NO_MEMORY.search(last_words):
            limit = "" if limits.memory is None else f": its limit is {limits.memory / 2**20:.0f} MB"
            return f"probably out of memory{limit}"
        return None

    def __str__(self) -> str:
        if self.code is None:
            return "ended, nobody knows how"
        if self.code >= 0:
            return f"exited with status {self.code}"
        try:
            return f"was ended by {signal.Signals(-self.code).name}"
        except ValueError:
            return f"was ended by signal {-self.code}"
