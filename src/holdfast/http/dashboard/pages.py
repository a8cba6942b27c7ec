"""The table of all pages, and of what their forms do: who may use each, and what fills it. The server and the test of
roles are made from it."""

from __future__ import annotations

from holdfast.http.dashboard import overview, queues
from holdfast.http.dashboard.page import Action, Page

PAGES = (
    Page("overview", "/", overview.load, overview.OverviewQuery),
    Page("queues", "/queues", queues.load),
)

ACTIONS = (
    Action("/queues/pause", queues.pause),
    Action("/queues/resume", queues.resume),
)


def page_at(path: str) -> tuple[Page, dict[str, str]] | None:
    """The page at this path, and the names in it."""
    for page in PAGES:
        if (found := page.pattern.match(path)) is not None:
            return page, found.groupdict()
    return None
