"""The four tables that teams have built queues of by hand, and what goes on around each: its old poller, heartbeat,
watchdog, user interface and readers, in their own SQL on connections of their own."""

from __future__ import annotations

from tests.adopt.systems.analysis_jobs import AnalysisJobs
from tests.adopt.systems.audits import Audits
from tests.adopt.systems.crawl_jobs import CrawlJobs
from tests.adopt.systems.execution_jobs import ExecutionJobs
from tests.adopt.systems.system import System

SYSTEMS: dict[str, type[System]] = {
    system.table: system for system in (Audits, ExecutionJobs, AnalysisJobs, CrawlJobs)
}  # fmt: skip
