"""The table of all pages, and of what their forms do: who may use each, and what fills it. The server and the test of
roles are made from it."""

from __future__ import annotations

from holdfast.http.dashboard import audit, bulk, errors, job, jobs, overview, queues, schedules, workers
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
    Page("workers", "/workers", workers.load),
    Page("schedules", "/schedules", schedules.load, schedules.SchedulesQuery, tick=5.0),
    Page("audit", "/audit", audit.load, audit.AuditQuery, tick=5.0),
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
    Action("/tasks/pause", queues.pause_task),
    Action("/tasks/resume", queues.resume_task),
    Action("/filters/resume", queues.resume_filter),
    Action("/workers/stop", workers.stop, role="admin"),
    Action("/schedules/add", schedules.add, role="admin"),
    Action("/schedules/remove", schedules.remove, role="admin"),
    Action("/schedules/run", schedules.run),
    Action("/schedules/pause", schedules.pause),
    Action("/schedules/resume", schedules.resume),
)


def page_at(path: str) -> tuple[Page, dict[str, str]] | None:
    """The page at this path, and the names in it."""
    for page in PAGES:
        if (found := page.pattern.match(path)) is not None:
            return page, found.groupdict()
    return None
