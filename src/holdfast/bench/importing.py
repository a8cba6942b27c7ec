"""How long a program waits for `import holdfast`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from statistics import median

TIMES = 7


def import_ms(times: int = TIMES) -> float:
    """In fresh interpreters, less what an interpreter takes that imports nothing; compiled once before."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as compiled:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = compiled

        def took(code: str) -> float:
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], env=environment, check=True)  # noqa: S603 - our own arguments
            return (time.perf_counter() - began) * 1e3

        took("import holdfast")
        pairs = [(took("pass"), took("import holdfast")) for _ in range(times)]
    return median(loaded for _, loaded in pairs) - median(bare for bare, _ in pairs)
