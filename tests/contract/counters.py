"""A process that enqueues, claims, succeeds and folds until it is killed: `python -m tests.contract.counters <url>
<schema> <mark>`. It makes the mark once it has done some of each."""

from __future__ import annotations

import sys
import uuid
from itertools import count
from pathlib import Path

from holdfast.model.outcome import Outcome
from holdfast.settings import Settings
from holdfast.store import open_store
from tests.factories import new_job, wants

FOLDER = "tests.contract.counters"
ENOUGH = 15  # turns


def main() -> None:
    url, schema, mark = sys.argv[1:]
    store = open_store(Settings(url=url, schema=schema, synchronous="off"))
    store.schema.check()
    for turn in count():
        store.enqueue(new_job())
        list(store.enqueue_many(new_job() for _ in range(5)))
        claimed = store.attempts.claim(wants(4, worker=str(uuid.uuid4())))
        store.exchange([Outcome("succeed", job.id, job.fence) for job in claimed.jobs[:3]], None)
        store.rollups.fold(limit=9)
        if turn == ENOUGH:
            Path(mark).touch()


if __name__ == "__main__":
    main()
