"""How long importing Holdfast takes: what every command and every process that enqueues pays first."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from statistics import median

TIMES = 7
# `import holdfast` alone loads next to nothing; a program that uses it pays for the class. The interpreter times it
# itself: its own start is no part of it.
TIMED = """
import time
began = time.perf_counter()
from holdfast import Holdfast
print((time.perf_counter() - began) * 1e3)
"""


def import_ms(times: int = TIMES) -> float:
    """The median over fresh interpreters, with every module compiled beforehand."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as compiled:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = compiled

        def took() -> float:
            done = subprocess.run(  # noqa: S603 - our own arguments
                [sys.executable, "-c", TIMED], env=environment, check=True, capture_output=True, text=True
            )
            return float(done.stdout)

        took()
        return median(took() for _ in range(times))
