"""Ten claimers in one process, each with a store of its own: claim until they have their share or nothing is left, and
note what was taken. A share each: however fast one of them is, many have to claim.
`python -m tests.crash.claimers <go> <ledger>`; HOLDFAST_* say where."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import uuid
from pathlib import Path

from holdfast.errors import StoreUnavailable
from holdfast.model.job import Wants
from holdfast.settings import load_settings
from holdfast.store import open_store

CLAIMERS = 10
SHARE = 6
EMPTY_LOOKS = 3  # one may have found everything locked by others; three in a row found nothing


def claim_all(name: str, go: Path, ledger: Path) -> None:
    store = open_store(load_settings())
    store.schema.check()
    (ledger.parent / f"ready-{name}").touch()
    while not go.exists():
        time.sleep(0.005)
    taken: list[str] = []
    empty = 0
    while empty < EMPTY_LOOKS and len(taken) < SHARE:
        limit = random.randint(1, SHARE)
        wants = Wants(fence=str(uuid.uuid4()), worker=name, tasks=("work",), limit=limit, lease=600.0)
        try:
            claimed = store.attempts.claim(wants)
        except StoreUnavailable:  # too many at the gate: again
            continue
        taken += [f"{job.id} {job.fence} {job.attempt} {name}\n" for job in claimed.jobs]
        empty = 0 if claimed.jobs or claimed.more else empty + 1
    trace = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(trace, "".join(taken).encode())
    os.close(trace)
    store.close()


def main() -> None:
    go, ledger = Path(sys.argv[1]), Path(sys.argv[2])
    threads = [
        threading.Thread(target=claim_all, args=(f"{os.getpid()}-{number}", go, ledger)) for number in range(CLAIMERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
