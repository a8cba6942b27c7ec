"""The application that works one of the four tables with Holdfast: `hf.adopt(**presets.audits)`, and a handler that
leaves its traces in the ledger."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from holdfast import Adopted, Holdfast, JobContext, presets
from tests.adopt.systems import SYSTEMS
from tests.adopt.systems.ledger import Ledger
from tests.adopt.systems.system import System

FOREVER = 600.0  # seconds: longer than any test
PAGES = 4  # of each site that is crawled
NAME = "SYSTEM_WORKER"  # the variable with the name of the worker
HOLDER = "holder"  # how the names of workers begin whose handlers run until they are killed

RESULTS: dict[str, Callable[[], Any]] = {
    "audits": lambda: {"score": 90, "findings": [{"severity": "low"}]},
    "execution_jobs": lambda: {"rows": 1},
    "analysis_jobs": lambda: {
        "bs_score": 6.5, "result_json": {"bunk_score": 6.5}, "model_used": "sonar-pro", "perplexity_latency_ms": 40,
    },
    "crawl_jobs": lambda: {"pages": PAGES},
}  # fmt: skip


def adopt(hf: Holdfast, system: type[System], **overrides: Any) -> Adopted:
    """The table as its preset has it, but for single values."""
    mapping: dict[str, Any] = {**getattr(presets, system.table), **overrides}
    return hf.adopt(**cast(Any, mapping | ({"results": system.results} if system.results else {})))


def application(
    table: str, ledger: Ledger, settings: dict[str, Any], *, isolated: bool = True, **overrides: Any
) -> Holdfast:
    """`isolated`: where the preset says so."""
    system = SYSTEMS[table]
    hf = Holdfast(preset=system.preset, **settings)
    who = os.environ.get(NAME, hf.settings.worker_name)
    # A process for one attempt has nothing of its worker's environment but what is named.
    options = {"env": [NAME]} if isolated and table == "crawl_jobs" else {"isolation": None}

    @adopt(hf, system, **overrides).task(**cast(Any, options))
    def work(ctx: JobContext, row: dict[str, Any]) -> Any:
        id, subject = row["id"], row[system.subject]
        ledger.note("start", id, who, ctx.attempt)
        try:
            if who.startswith(HOLDER):
                wait(ctx)
            if table == "crawl_jobs":
                crawl(ctx, id, who, subject)
        except BaseException:
            ledger.note("stopped", id, who)
            raise
        if "stubborn" in subject:
            wait_for(ledger.path.with_name("gate"))
            ctx.checkpoint(ctx.saved)  # where it stops, if it has heard that it should
        if fails(subject, ctx.attempt):
            ledger.note("fail", id, who)
            raise RuntimeError("the site did not answer")
        ledger.note("end", id, who)
        return RESULTS[table]()

    def crawl(ctx: JobContext, id: str, who: str, subject: str) -> None:
        """Each page that is done makes one less to do, and is done once."""
        for pending in range(ctx.saved or PAGES, 0, -1):
            ledger.note("saving", id, who, pending)
            ctx.checkpoint(pending, pending=pending)
            ledger.note("saved", id, who, pending)
            if "endless" in subject:
                wait(ctx)

    return hf


def wait(ctx: JobContext) -> None:
    """Until somebody asks for its end."""
    deadline = time.monotonic() + FOREVER
    while not ctx.should_stop() and time.monotonic() < deadline:
        time.sleep(0.01)
    if ctx.should_stop():
        ctx.checkpoint(ctx.saved)  # which stops here


def wait_for(gate: Path) -> None:
    """Whatever is asked meanwhile."""
    deadline = time.monotonic() + FOREVER
    while not gate.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def fails(subject: str, attempt: int) -> bool:
    return "doomed" in subject or ("flaky" in subject and attempt == 1)
