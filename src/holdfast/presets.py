"""The tables of four systems that many teams have built by hand, as `hf.adopt` takes them.

    hf = Holdfast(preset="crawl")
    crawls = hf.adopt(**presets.crawl_jobs)

The columns and words are those that each system's own readers and writers know. A table that differs in some of them
is adopted with those overridden: `hf.adopt(**presets.audits | {"worker": "claimed_by"})`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Required, cast

from holdfast.model.presets import PRESETS

if TYPE_CHECKING:
    from holdfast.adopting import AdoptArguments

    class TableArguments(AdoptArguments):
        table: Required[str]


def _table(preset: str) -> TableArguments:
    return cast("TableArguments", PRESETS[preset].table)


audits = _table("site-audit")
"""Website audits: heartbeats, 5 minutes of silence, `retry_count` counts failures. Settings: `site-audit`."""
execution_jobs = _table("recording")
"""Runs of recordings: claims by condition, version and time of change. Settings: `recording`."""
analysis_jobs = _table("claim-check")
"""Analyses with a result: a claim holds for 10 minutes, attempts are counted as it is made. Settings: `claim-check`."""
crawl_jobs = _table("crawl")
"""Crawls: a supervisor's heartbeats, 2 minutes of silence, pause and cancel, `crawl_states.total_pending`. Settings:
`crawl`."""
