"""`python -m tests.chaos`: rounds of the campaign on both engines, by turns, for so many minutes. Exit status 1 if
anything was broken. Each round has a seed of its own, named in the report: `--seed` begins with that one again."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.campaign import run
from tests.chaos.liveness import BY_LOAD

ROOT = Path(__file__).parents[2]
ROUND = 4.0  # minutes under fire, at most
QUIET = 0.6  # minutes that a round takes besides


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="in all (default: 10)")
    parser.add_argument("--engine", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--seed", type=int, help="of the first round; the others count on (default: by chance)")
    parser.add_argument(
        "--source", type=Path, default=ROOT, help="the source tree to put under fire (default: this one)"
    )
    parser.add_argument("--out", type=Path, help="keep everything there (default: only what is broken, in a new place)")
    parser.add_argument("--faults", nargs="*", metavar="FAULT", help='only these, as in "kill worker" (default: all)')
    parser.add_argument("--tasks", nargs="+", default=[], help="producers choose among these (default: all)")
    parser.add_argument(
        "--until", metavar="RULE", help="only this rule decides, and ends a round as soon as it is broken"
    )
    parser.add_argument(
        "--slack", type=float, default=1.0, help="how many times as long everything may take: a loaded machine is slow"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of every `finally`: nobody is left behind

    engines = ["sqlite", "postgres"] if options.engine == "both" else [options.engine]
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    out = options.out or Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
    rounds = max(len(engines), round(options.minutes / (ROUND + QUIET)))
    seconds = max(10.0, (options.minutes / rounds - QUIET) * 60)
    broken = 0
    began = time.monotonic()
    totals = {"jobs": 0, "fault count": 0, "claims": 0}
    for number in range(rounds):
        engine = engines[number % len(engines)]
        home = out / f"{engine}-{seed + number}"
        result = run(
            engine,
            seed + number,
            seconds,
            home,
            options.source.resolve(),
            options.faults,
            options.tasks,
            options.until,
            options.slack,
        )
        print(result.page, end="\n\n", flush=True)
        for name in totals:
            totals[name] += result.found[name]
        deciding = {violation.rule for violation in result.violations} - (BY_LOAD if options.slack > 1 else set())
        if (options.until in deciding) if options.until else deciding:
            broken += 1
            print(f"  evidence: {home}\n", flush=True)
        elif options.out is None:
            shutil.rmtree(home, ignore_errors=True)
    told = {
        **totals,
        "rounds": rounds,
        "broken": broken,
        "first seed": seed,
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    print(json.dumps(told))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
