"""What the kernel says about our processes."""

from __future__ import annotations

import subprocess
import sys

from holdfast.runners.linux import memory
from tests.waiting import wait_until

HOLDS = "import sys; kept = bytearray(b'x' * 60_000_000); print('there', flush=True); sys.stdin.read()"
STARTS_ONE = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HOLDS!r}])"


def test_the_memory_of_a_process_is_that_of_all_its_descendants() -> None:
    before = memory()
    assert before is not None
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_ONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
        assert (memory() or 0) - before > 60_000_000
        child.communicate("")
    wait_until(lambda: (memory() or 0) - before < 30_000_000)
