"""The table of all pages, and of what their forms do: who may use each, and what fills it. The server and the test of
roles are made from it."""

from __future__ import annotations

from holdfast.http.dashboard import bulk, errors, job, jobs, overview, queues
from holdfast.http.dashboard.page import Action, Fragment, Page

PAGES = (
    Page("overview", "/", overview.load, overview.OverviewQuery),
    Page("queues", "/queues", queues.load),
    Page("jobs", "/jobs", jobs.load, jobs.JobsQuery),
    Page("job", "/jobs/{id}", job.load),
    Page("replay", "/jobs/{id}/replay", job.edit, role="operator", tick=0),
    Page("errors", "/errors", errors.load, errors.ErrorsQuery, tick=5.0),
    Page("group", "/errors/{group}", errors.group, tick=5.0),
    Page("bulk", "/bulk", bulk.load, tick=1.0),
    Page("bulk_new", "/bulk/new", bulk.new, bulk.NewQuery, role="operator", tick=0),
)

FRAGMENTS = (
    Fragment("suggestions", "/jobs/suggest", jobs.suggest, jobs.FilterQuery),
    Fragment("count", "/jobs/count", jobs.count, jobs.FilterQuery),
    Fragment("now", "/jobs/{id}/now", job.now, job.StackQuery, role="operator", asks=True),
)

ACTIONS = (
    Action("/queues/pause", queues.pause),
    Action("/queues/resume", queues.resume),
    Action("/jobs/choose", jobs.choose),
    Action("/jobs/{id}/do", job.act),
    Action("/jobs/{id}/replay", job.replay),
    Action("/bulk/start", bulk.start),
)


def page_at(path: str) -> tuple[Page, dict[str, str]] | None:
    """The page at this path, and the names in it."""
    for page in PAGES:
        if (found := page.pattern.match(path)) is not None:
            return page, found.groupdict()
    return None
