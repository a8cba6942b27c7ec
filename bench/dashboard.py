"""How long the dashboard's pages take over a large table: each page and fragment, one after another, read anew each
time over connections that only read, as a lone viewer has it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2

from bench.app import PAD, hf, noop
from bench.sizes import Sizes
from bench.target import ARGS, Target
from holdfast.http.dashboard import views
from holdfast.http.dashboard.pages import FRAGMENTS, PAGES
from holdfast.model.fingerprint import LENGTH
from holdfast.store.sqlite.codec import stored

QUEUES = 5
SLICES = 40  # moments of the last week at which jobs ended
GROUPS = 20  # of errors
INSERT = (
    "insert into @jobs (queue, task, args, state, attempt, max_attempts, created_at, run_at, ready_at, started_at, "
    "finished_at, failed_at, fence, worker, error_code, error_message, error_fingerprint) select :queue, :task, "
    "{json}, "
)
FINISHED = "'succeeded', 1, 3, {at}, {at}, null, {at}, {at}, null, {uuid}, 'crowd', null, null, null"
QUEUED = "'queued', 0, 3, {at}, {at}, {at}, null, null, null, null, null, null, null, null"
FAILED = "'failed', 3, 3, {at}, {at}, null, {at}, {at}, {at}, {uuid}, 'crowd', :code, :code, :print"
# What people look for. Each is one of the filters that the pages offer.
FILTERS = (
    "", "state:failed", "state:queued", "state:succeeded", "state:running", "state:retrying", "queue:queue1",
    "task:noop since:1h", "state:failed queue:queue2 since:24h", "error:Error7", "tag:none", "worker:crowd",
    "key:none", "args.pad:none", "id:5",
)  # fmt: skip


def dashboard(target: Target, sizes: Sizes) -> dict[str, float]:
    """The p95 of each page and fragment, in milliseconds."""
    _load(target, sizes)
    fresh, views.FRESH = views.FRESH, -1.0
    try:
        return asyncio.run(_measured(sizes))
    finally:
        views.FRESH = fresh


def _load(target: Target, sizes: Sizes) -> None:
    at = ":at" if target.engine == "sqlite" else ":at::timestamptz"
    now = datetime.now(UTC)

    def insert(what: str, jobs: int, ago: timedelta, **more: Any) -> None:
        text = f"{INSERT}{what} from {{series}}".format(**target.words, at=at)
        instant = now - ago
        when = stored(instant) if target.engine == "sqlite" else instant
        target.rows(text, args=ARGS, n=jobs, task=noop.name, at=when, **more)

    for n in range(SLICES):
        ago, queue = timedelta(days=7) * (SLICES - n) / SLICES, f"queue{n % QUEUES}"
        insert(FINISHED, sizes.crowd // SLICES, ago, queue=queue)
        code = f"Error{n % GROUPS}"
        insert(
            FAILED, max(1, sizes.crowd // 200 // SLICES), ago, queue=queue, code=code, print=f"{n % GROUPS:0{LENGTH}x}"
        )
    for n in range(QUEUES):
        insert(QUEUED, sizes.crowd // 10 // QUEUES, timedelta(minutes=n), queue=f"queue{n}")
    hf.pause_queue("queue4", reason="a benchmark")
    hf.schedule("nightly", noop.bind(PAD), cron="0 3 * * *")
    while hf.store.rollups.fold():
        continue
    target.settle()


def _places() -> Iterator[str]:
    [failed, *_] = hf.jobs("state:failed", limit=1)
    names = {"id": failed.id, "group": f"{7:0{LENGTH}x}", "name": "nightly", "queue": "queue1", "worker": "none"}
    for page in (*PAGES, *(piece for piece in FRAGMENTS if not piece.asks)):  # those wait for a worker
        path = page.path.format_map(names)
        offered = page.query.__struct_fields__
        if "filter" in offered:
            every = page.name in ("jobs", "suggestions")  # elsewhere an empty filter, which means every job, is refused
            yield from (f"{path}?{httpx2.QueryParams(filter=filter)}" for filter in FILTERS if filter or every)
        elif "range" in offered:
            yield from (f"{path}?range={length}" for length in ("hour", "day", "week", "month"))
        else:
            yield path


async def _measured(sizes: Sizes) -> dict[str, float]:
    asgi = hf.asgi(open="admin")
    found = {}
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(asgi), base_url="http://bench", timeout=60.0
    ) as client:  # fmt: skip
        for place in await asyncio.to_thread(lambda: list(_places())):
            took = []
            for _ in range(sizes.looks):
                began = time.perf_counter()
                answer = await client.get(place)
                took.append(1000 * (time.perf_counter() - began))
                assert answer.status_code == 200, f"{place}: {answer.status_code} {answer.text[:2000]}"
            found[place] = sorted(took)[int(0.95 * len(took))]
    return found


if __name__ == "__main__":
    import sys

    from bench.target import opened

    sized = Sizes(crowd=int(sys.argv[2]))
    with opened(sys.argv[1], None) as where:
        began = time.perf_counter()
        result = dashboard(where, sized)
        print(f"{time.perf_counter() - began:.0f} s in all")
    for place, ms in sorted(result.items(), key=lambda item: -item[1]):
        print(f"{ms:8.1f} ms  {place}")
