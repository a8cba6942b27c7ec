"""`holdfast demo --ui` in a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import wait_until


@contextmanager
def demonstrating(home: Path) -> Iterator[str]:
    with (home / "demo.log").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "demo", "--ui", "--port", "0", "--keep", str(home / "demo.db")],
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            said = Path(log.name)
            found = wait_until(
                lambda: re.search(r"dashboard: (\S+)", said.read_text()) or process.poll() is not None, timeout=60
            )
            assert isinstance(found, re.Match), said.read_text()
            yield found[1]
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0, said.read_text()
        finally:
            process.kill()
            process.wait()
