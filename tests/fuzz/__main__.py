"""`python -m tests.fuzz`: so many hostile frames against a worker's side of its lines. Exit status 1 if the worker did
what it should not. Each line has a seed of its own; one that broke something is printed, and belongs into
`regressions.txt`, whose lines `make test` repeats."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import traceback

from holdfast.settings import Settings
from holdfast.store import open_store
from tests.fuzz.lines import KINDS, MEMORY, Lines, resident

WARM = 500  # lines before memory is measured: caches and pools fill


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000, help="in all (default: a million)")
    parser.add_argument("--seed", type=int, help="to repeat (default: by chance)")
    parser.add_argument("--line", help='only this one, as it was printed: "pooled 17:3"')
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    began, number, before, most = time.monotonic(), 0, 0, 0
    with tempfile.TemporaryDirectory(prefix="holdfast-fuzz-") as home:
        store = open_store(Settings(url=f"sqlite:///{home}/jobs.db", synchronous="off"))
        store.schema.migrate()
        lines = Lines(store)
        while lines.frames < options.frames:
            kind, name = options.line.split() if options.line else (KINDS[number % 2], f"{seed}:{number}")
            try:
                lines.talk(kind, name)
            except Exception:  # noqa: BLE001 - whatever it is, nobody should be able to cause it
                traceback.print_exc()
                print(f"broken by: {kind} {name}", flush=True)
                os._exit(1)  # the worker's side is in a state that it should never be in
            number += 1
            if number == WARM:
                before = resident()
            elif number % 100 == 0:
                most = max(most, resident())
            if options.line:
                break
        lines.close()
        store.close()
    grown = most - before if before and most else 0
    print(
        f"{lines.frames:,} frames on {number:,} lines in {time.monotonic() - began:.0f} s: nothing is broken, "
        f"{lines.ends.count:,} attempts ended, memory grew by {grown / 2**20:.0f} MB"
    )
    return 1 if grown > MEMORY else 0


if __name__ == "__main__":
    sys.exit(main())
