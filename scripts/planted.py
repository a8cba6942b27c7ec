"""What Holdfast promises, and the bugs that `make mutants` plants against each promise: an exact replacement in a
file of src/holdfast, what it breaks, and the tests that must fail then. docs/guarantees.md is made from this."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = Path("src", "holdfast")


class Change(NamedTuple):
    file: str
    old: str
    new: str


class Bug(NamedTuple):
    breaks: str
    changes: tuple[Change, ...]
    tests: tuple[str, ...]
    rule: str = ""  # of tests/chaos/checker.py or liveness.py, that the campaign sees broken
    faults: tuple[str, ...] = ()  # under which that comes soon,
    tasks: tuple[str, ...] = ()  # with these jobs; none: all kinds
    engine: str = ""
    hidden: str = ""  # why the campaign can't see it

    def and_also(self, file: str, old: str, new: str) -> Bug:
        """What is guarded twice breaks only where both guards are gone."""
        return self._replace(changes=(*self.changes, Change(file, old, new)))

    def seen_by(self, rule: str, *faults: str, tasks: str = "", engine: str = "") -> Bug:
        """The campaign sees it: this rule is broken, soonest under these faults with these tasks."""
        own = "postgres" if "postgres" in self.changes[0].file else "sqlite"
        return self._replace(rule=rule, faults=faults, tasks=tuple(tasks.split()), engine=engine or own)

    def unseen(self, why: str) -> Bug:
        """Nothing that can be seen from outside, under load and faults, tells it from what is in order."""
        return self._replace(hidden=why)


def bug(breaks: str, file: str, old: str, new: str, *tests: str) -> Bug:
    return Bug(breaks, (Change(file, old, new),), tests)


OVER_HTTP = "the campaign sends nothing over HTTP"

# Each promise by its name: pytest -m 'guarantee(name="fence")' runs the tests behind one.
PROMISES = {
    "accepted": "An accepted job is never lost: not by a killed worker, a restart or a deployment.",
    "rollback": "A rolled-back transaction leaves no job and no wake-up for one.",
    "one_holder": "However many workers claim at once, each job has one holder.",
    "exact_claim": "A claim returns exactly the jobs it took, and never more than it asked for.",
    "fence": "Whoever lost a job can no longer record anything for it.",
    "renewal": "Only the holder renews a lease, and only forward.",
    "lease": "A job is taken back only if its lease expired or its worker is dead, however long it runs.",
    "rescue": "The jobs of a dead worker run again without anybody's help.",
    "success_once": "A success is recorded once. Effects committed with it happen exactly once.",
    "final": "Success is final.",
    "charging": "An attempt is charged when it is claimed, never more often than allowed; a released job is not charged.",
    "quarantine": "A job that kills its workers is quarantined, and jobs that ran beside it lose no attempt.",
    "claimable": "No queued job is ever in a condition in which nobody may claim it.",
    "keys": "Of equal jobs (same task and key) one is unfinished at a time.",
    "due": "A job never starts before it is due, by the database's clock.",
    "order": "Jobs are claimed by priority, then by due time, then in the order they came.",
    "pause": "What is paused does not start: a job, a queue, a task, or everything that a filter matches.",
    "expiry": "A job that has not started by its expiry is cancelled and never starts.",
    "cancel": "After a cancel a waiting job never runs; a running one ends cancelled or succeeded.",
    "transitions": "Every verb moves a job as the table of transitions says, or is refused and changes nothing.",
    "cron": "A cron creates one job per tick, however many workers run and whichever die.",
    "counted": "Whatever happens to a job is counted once, in counters that survive restarts.",
    "lost_reply": "A lost reply, and sending the same thing again, change nothing.",
    "unknown_task": "A job whose task no worker knows waits; it is never dropped.",
    "shutdown": "A stopping worker finishes what it can within its grace and releases the rest, uncharged.",
    "outage": "A database outage costs no attempt, and outcomes wait until it is over.",
    "hints": "Wake-ups are hints: without them jobs start later, and nothing else changes.",
    "checkpoint": "A checkpoint is there for the next attempt.",
    "retention": "Finished jobs are deleted when their time has come, and no others.",
    "audit": "What an operator does is recorded with who did it, in the same transaction, or it is not done.",
    "backlog": "A million finished, paused, future or unserved jobs don't slow the others down.",
    "upgrade": "Workers continue through a schema upgrade, or stop and say why.",
    "sqlite": "On SQLite, commits are on disk, and the file is safe from forks, full disks, network file systems and the library's own checkpoint bug.",
    "plain_sql": "The queue is plain SQL: jobs, errors and history are ordinary columns, and an inserted row is a job.",
    "adopted": "A row of an adopted table and its job agree, or the difference is known. Neither side waits for the other, and no row is worked twice.",
    "hostile": "Whatever others send or write is a hint or a text: it starts nothing, and neither worker nor terminal obeys it.",
    "http": "Over HTTP, nobody sees or changes a job without its token or a role; a forged token costs no statement.",
}

# The bugs that are planted against each promise.
GUARANTEES: dict[str, list[Bug]] = {
    "accepted": [
        bug(
            "PostgreSQL: expired leases are never found",
            "store/postgres/leases.sql",
            "(:by_expiry and l.expires_at < @now)",
            "(:by_expiry and false)",
            "contract/test_rescue.py::test_processing_jobs_whose_lease_expired_are_found_and_recovered",
        ).seen_by("silence_costs_the_lease", "freeze worker", tasks="long late quick aquick"),
        bug(
            "SQLite: expired leases are never found",
            "store/sqlite/leases.sql",
            "(:by_expiry and expires_at < @now)",
            "(:by_expiry and false)",
            "contract/test_rescue.py::test_processing_jobs_whose_lease_expired_are_found_and_recovered",
        ).seen_by("silence_costs_the_lease", "freeze worker", tasks="long late quick aquick"),
        bug(
            "the lease of a claim does not name its jobs",
            "store/sqlite/exchange.py",
            '"ids": sorted(ready),',
            '"ids": sorted(ready)[1:],',
            "contract/test_rescue.py::test_processing_jobs_whose_lease_expired_are_found_and_recovered",
        ).seen_by("everything_ends", "kill worker", tasks="late nap quick aquick"),
        bug(
            "the lease of a claim does not name all of its jobs",
            "store/postgres/claim.sql",
            "array_agg(id order by id)",
            "array_agg(id order by id) filter (where id % 2 = 0)",
            "contract/test_rescue.py::test_processing_jobs_whose_lease_expired_are_found_and_recovered",
        ).seen_by("everything_ends", "kill worker", tasks="late nap quick aquick"),
    ],
    "rollback": [
        bug(
            "a job enqueued in the caller's transaction is committed on our own connection",
            "store/base.py",
            "        execute = self.user_connections.execute_on(connection)\n",
            "        return self.enqueue(job)\n",
            "contract/test_enqueue.py::test_a_job_goes_with_the_callers_rollback",
        ).seen_by("what_was_not_kept_is_not_there", tasks="quick"),
        bug(
            "a job enqueued in the caller's transaction wakes workers before the commit",
            "store/base.py",
            "        execute = self.user_connections.execute_on(connection)\n",
            "        execute = self.user_connections.execute_on(connection)\n        self.wakeups.notify([job.queue])\n",
            "contract/test_enqueue.py::test_a_rollback_leaves_no_wake_up_and_a_commit_leaves_some",
        ).unseen("a wake-up for nothing only costs a look"),
        bug(
            "a long stream of jobs is committed in parts",
            "store/postgres/enqueue.py",
            "                chunk = following\n",
            "                chunk = following\n                connection.execute('commit')\n                connection.execute('begin')\n",
            "contract/test_enqueue.py::test_a_stream_that_breaks_leaves_nothing",
        ).seen_by("what_was_not_kept_is_not_there", tasks="quick"),
    ],
    "one_holder": [
        bug(
            "SQLite: a transaction reads before it has the write lock",
            "store/sqlite/connect.py",
            '            self._locking("begin immediate")\n            try:',
            '            self._locking("begin")\n            try:',
            "contract/test_sqlite.py::test_our_transactions_have_the_write_lock_before_they_read",
        ).unseen("the gate or the write lock, whichever is left, still keeps the others out"),
        bug(
            "SQLite: the gate admits several writers at once",
            "store/sqlite/gate.py",
            "            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)",
            "            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)",
            "contract/test_migrate.py::test_a_writer_that_waited_too_long_is_told_to_try_again",
        ).unseen("the gate or the write lock, whichever is left, still keeps the others out"),
        bug(
            "PostgreSQL: claims lock nothing and take jobs that are no longer queued",
            "store/postgres/claim.sql",
            "             limit :n for update of j skip locked) s\n",
            "             limit :n) s\n",
            "contract/test_ahead.py::test_claims_at_once_in_one_lane_take_different_jobs",
        )
        .and_also(
            "store/postgres/claim.sql",
            "(select id from chosen)) and j.state = 'queued'\n",
            "(select id from chosen))\n",
        )
        .seen_by("a_job_has_one_holder", "kill worker"),
        bug(
            "PostgreSQL: a claim waits for jobs that others have locked",
            "store/postgres/claim.sql",
            "             limit :n for update of j skip locked) s\n",
            "             limit :n for update of j) s\n",
            "contract/test_ahead.py::test_jobs_that_others_have_locked_are_told_of_and_not_waited_for",
            "contract/test_told.py::test_what_others_have_locked_does_not_stand_in_the_way",
        ).unseen("a claim waits two seconds at most for a lock, less than any limit of the checker"),
    ],
    "exact_claim": [
        bug(
            "SQLite: a claim takes one job too many",
            "store/sqlite/exchange.py",
            "        n = wants.limit + wants.ahead\n",
            "        n = wants.limit + wants.ahead + 1\n",
            "contract/test_claim.py::test_a_claim_takes_no_more_than_its_limit_and_returns_what_it_moved",
        ).unseen("workers prefetch, so one job more makes no visible difference"),
        bug(
            "PostgreSQL: a claim from several lanes takes one job too many",
            "store/postgres/claim.sql",
            "     limit :n for update of j skip locked\n),\npicked",
            "     limit :n + 1 for update of j skip locked\n),\npicked",
            "contract/test_claim.py::test_a_claim_takes_no_more_than_its_limit_and_returns_what_it_moved",
        ).unseen("workers prefetch, so one job more makes no visible difference"),
        bug(
            "PostgreSQL: a claim from one lane takes one job too many",
            "store/postgres/claim.sql",
            "             limit :n for update of j skip locked) s\n",
            "             limit :n + 1 for update of j skip locked) s\n",
            "contract/test_ahead.py::test_claims_at_once_in_one_lane_take_different_jobs",
        ).unseen("workers prefetch, so one job more makes no visible difference"),
    ],
    "fence": [
        bug(
            "PostgreSQL: succeed does not check the fence",
            "store/postgres/succeed.sql",
            " and state = 'running' and fence = :fence::uuid",
            " and state = 'running' and :fence::uuid is not null",
            "contract/test_succeed.py::test_a_worker_whose_job_was_rescued_cannot_succeed_it",
        ).seen_by("success_is_of_its_holder", "freeze worker", tasks="late quick aquick"),
        bug(
            "PostgreSQL: succeed with a result does not check the fence",
            "store/postgres/succeed.sql",
            " and j.state = 'running' and j.fence = :fence::uuid",
            " and j.state = 'running' and :fence::uuid is not null",
            "contract/test_transitions.py::test_a_stale_fence_is_refused_in_every_state_and_changes_nothing",
        ).seen_by("success_is_of_its_holder", "freeze worker", tasks="spawner long quick aquick"),
        bug(
            "SQLite: succeed does not check the fence",
            "store/sqlite/succeed.sql",
            " where id in (select value from json_each(:ids)) and state = 'running' and fence = :fence",
            " where id in (select value from json_each(:ids)) and state = 'running'",
            "contract/test_succeed.py::test_a_worker_whose_job_was_rescued_cannot_succeed_it",
        ).seen_by("success_is_of_its_holder", "freeze worker", tasks="late quick aquick"),
        bug(
            "SQLite: succeed with a result does not check the fence",
            "store/sqlite/succeed.sql",
            " where @jobs.id = ended.value ->> 0 and state = 'running' and fence = :fence",
            " where @jobs.id = ended.value ->> 0 and state = 'running'",
            "contract/test_transitions.py::test_a_stale_fence_is_refused_in_every_state_and_changes_nothing",
        ).seen_by("success_is_of_its_holder", "freeze worker", tasks="spawner long quick aquick"),
        bug(
            "reschedule does not check the fence",
            "store/sql/outcomes.sql",
            "       fence = null, crashes = 0, suspicion = 0,\n       error_code = :error_code, error_message = :error_message\n where id = :id and state = 'running' and fence = :fence",
            "       fence = null, crashes = 0, suspicion = 0,\n       error_code = :error_code, error_message = :error_message\n where id = :id and state = 'running'",
            "contract/test_transitions.py::test_a_stale_fence_is_refused_in_every_state_and_changes_nothing",
        ).seen_by("an_end_is_of_its_holder", "freeze worker", tasks="late_retry quick aquick"),
        bug(
            "fail does not check the fence",
            "store/sql/outcomes.sql",
            "       pause_requested = false, cancel_requested = false,\n       error_code = :error_code, error_message = :error_message\n where id = :id and state = 'running' and fence = :fence",
            "       pause_requested = false, cancel_requested = false,\n       error_code = :error_code, error_message = :error_message\n where id = :id and state = 'running'",
            "contract/test_transitions.py::test_a_stale_fence_is_refused_in_every_state_and_changes_nothing",
        ).seen_by("an_end_is_of_its_holder", "freeze worker", tasks="late_fail quick aquick"),
        bug(
            "release does not check the fence",
            "store/sql/release.sql",
            " where id = :id and state = 'running' and fence = :fence",
            " where id = :id and state = 'running'",
            "contract/test_transitions.py::test_a_stale_fence_is_refused_in_every_state_and_changes_nothing",
        ).seen_by("an_end_is_of_its_holder", "freeze worker", tasks="late_snooze quick aquick"),
        bug(
            "park does not check the fence",
            "store/sql/outcomes.sql",
            "       error_message = case when cancel_requested then coalesce(asked_why, 'cancelled on request') else error_message end\n where id = :id and state = 'running' and fence = :fence",
            "       error_message = case when cancel_requested then coalesce(asked_why, 'cancelled on request') else error_message end\n where id = :id and state = 'running'",
            "contract/test_transitions.py::test_a_stale_fence_is_refused_in_every_state_and_changes_nothing",
        ).unseen("a pause, a rescue and a resume would have to fall into one freeze"),
        bug(
            "stop does not check the fence",
            "store/sql/outcomes.sql",
            "       error_message = coalesce(:error_message, asked_why, 'cancelled on request')\n where id = :id and state = 'running' and fence = :fence",
            "       error_message = coalesce(:error_message, asked_why, 'cancelled on request')\n where id = :id and state = 'running'",
            "contract/test_transitions.py::test_a_stale_fence_is_refused_in_every_state_and_changes_nothing",
        ).seen_by("an_end_is_of_its_holder", "freeze worker", tasks="late_cancel quick aquick"),
        bug(
            "progress does not check the fence",
            "store/sql/outcomes.sql",
            "   set done = coalesce(:done, done), total = coalesce(:total, total), note = coalesce(:note, note), rate = :rate, progressed_at = @clock\n where id = :id and state = 'running' and fence = :fence",
            "   set done = coalesce(:done, done), total = coalesce(:total, total), note = coalesce(:note, note), rate = :rate, progressed_at = @clock\n where id = :id and state = 'running'",
            "contract/test_transitions.py::test_a_stale_fence_is_refused_in_every_state_and_changes_nothing",
        ).seen_by("who_lost_a_job_keeps_nothing", "freeze worker", tasks="long along quick aquick"),
        bug(
            "PostgreSQL: checkpoint does not check the fence",
            "store/postgres/progress.sql",
            "       set checkpoint = :checkpoint, pending = :pending, done = coalesce(:done, done), progressed_at = @clock\n     where id = :id and state = 'running' and fence = :fence",
            "       set checkpoint = :checkpoint, pending = :pending, done = coalesce(:done, done), progressed_at = @clock\n     where id = :id and state = 'running'",
            "contract/test_transitions.py::test_a_stale_fence_is_refused_in_every_state_and_changes_nothing",
            "contract/test_leases.py::test_a_zombies_checkpoint_does_not_overwrite_its_heirs",
        ).seen_by("who_lost_a_job_keeps_nothing", "freeze worker", tasks="checkpoints acheckpoints quick aquick"),
        bug(
            "SQLite: checkpoint does not check the fence",
            "store/sqlite/progress.sql",
            "   set checkpoint = :checkpoint, pending = :pending, done = coalesce(:done, done), progressed_at = @clock\n where id = :id and state = 'running' and fence = :fence",
            "   set checkpoint = :checkpoint, pending = :pending, done = coalesce(:done, done), progressed_at = @clock\n where id = :id and state = 'running'",
            "contract/test_transitions.py::test_a_stale_fence_is_refused_in_every_state_and_changes_nothing",
            "contract/test_leases.py::test_a_zombies_checkpoint_does_not_overwrite_its_heirs",
        ).seen_by("who_lost_a_job_keeps_nothing", "freeze worker", tasks="checkpoints acheckpoints quick aquick"),
        bug(
            "SQLite: a step does not check the fence",
            "store/sql/steps.sql",
            " where j.id = :id and j.state = 'running' and j.fence = :fence",
            " where j.id = :id and j.state = 'running'",
            "contract/test_steps.py::test_whoever_runs_the_job_next_finds_its_steps",
        ).seen_by("who_lost_a_job_keeps_nothing", "freeze worker", tasks="steps asteps quick aquick"),
        bug(
            "PostgreSQL: a step does not check the fence",
            "store/postgres/progress.sql",
            "      from @jobs\n     where id = :id and state = 'running' and fence = :fence",
            "      from @jobs\n     where id = :id and state = 'running'",
            "contract/test_steps.py::test_whoever_runs_the_job_next_finds_its_steps",
        ).seen_by("who_lost_a_job_keeps_nothing", "freeze worker", tasks="steps asteps quick aquick"),
        bug(
            "PostgreSQL: a step is saved without locking the job",
            "store/postgres/progress.sql",
            "       for no key update\n",
            "",
            "contract/test_steps.py::test_a_step_waits_for_a_rescue_under_way_and_is_not_kept",
        ).unseen("a rescue would have to commit within microseconds of the step"),
    ],
    "renewal": [
        bug(
            "PostgreSQL: a renewal shortens a lease",
            "store/postgres/leases.sql",
            "greatest(expires_at, @after(lease))",
            "@after(lease)",
            "contract/test_leases.py::test_a_lease_is_only_ever_renewed_forward",
        ).unseen("all leases have one length, so now + lease is never before the end of one"),
        bug(
            "SQLite: a renewal shortens a lease",
            "store/sqlite/leases.sql",
            "max(expires_at, @after(lease))",
            "@after(lease)",
            "contract/test_leases.py::test_a_lease_is_only_ever_renewed_forward",
        ).unseen("all leases have one length, so now + lease is never before the end of one"),
        bug(
            "PostgreSQL: a heartbeat renews the leases of others",
            "store/postgres/leases.sql",
            " where fence = any(:fences::uuid[])",
            " where fence = any(:fences::uuid[]) or true",
            "contract/test_leases.py::test_a_lease_is_renewed_only_by_its_own_fence",
        ).seen_by("silence_costs_the_lease", "freeze worker", tasks="long late quick aquick"),
        bug(
            "SQLite: a heartbeat renews the leases of others",
            "store/sqlite/leases.sql",
            "update @leases set expires_at = max(expires_at, @after(lease)), held = :held\n where fence in (select value from json_each(:fences))",
            "update @leases set expires_at = max(expires_at, @after(lease)), held = :held\n",
            "contract/test_leases.py::test_a_lease_is_renewed_only_by_its_own_fence",
        ).seen_by("silence_costs_the_lease", "freeze worker", tasks="long late quick aquick"),
        bug(
            "PostgreSQL: a lease is timed by the worker's clock",
            "store/postgres/database.py",
            'after=lambda name: f"({tick} + make_interval(secs => %({name})s::float8))"',
            "after=lambda name: f\"('{datetime.now(UTC)}'::timestamptz + make_interval(secs => %({name})s::float8))\"",
            "contract/test_leases.py::test_renewing_extends_the_lease_by_the_databases_clock",
        ).unseen("one machine has one clock"),
    ],
    "lease": [
        bug(
            "PostgreSQL: leases are taken back before they end",
            "store/postgres/leases.sql",
            "l.expires_at < @now",
            "true",
            "contract/test_rescue.py::test_an_unexpired_lease_of_a_live_worker_is_never_touched",
        ).seen_by("nobody_is_robbed", "freeze worker", tasks="late long quick aquick"),
        bug(
            "SQLite: leases are taken back before they end",
            "store/sqlite/leases.sql",
            "expires_at < @now",
            "true",
            "contract/test_rescue.py::test_an_unexpired_lease_of_a_live_worker_is_never_touched",
        ).seen_by("nobody_is_robbed", "freeze worker", tasks="late long quick aquick"),
        bug(
            "a rescue does not check again whether the job still runs under that fence",
            "store/sql/rescue.sql",
            " where id = :id and state = 'running' and fence = :fence",
            " where id = :id",
            "contract/test_rescue.py::test_rescue_writes_only_what_is_still_running_under_that_fence",
        ).unseen("the row was read under a lock, so a second check finds the same"),
        bug(
            "a watchdog that was stalled does not give holders time to renew",
            "worker/rescuer.py",
            '        """The database was away, or may have been: give every holder one lease to renew."""\n        self._since = now() + self._lease',
            '        """The database was away, or may have been: give every holder one lease to renew."""',
            "work/test_mishaps.py::test_a_look_that_was_held_up_rescues_nobody",
        ).seen_by("nobody_is_robbed", "foreign write lock", tasks="late long quick aquick"),
        bug(
            "leases are not renewed",
            "worker/heartbeat.py",
            "            alive, requests = self._store.attempts.renew(fences, list(refs), self._lease)",
            "            alive, requests = set(fences), []",
            "work/test_runners.py::test_leases_are_renewed_for_as_long_as_a_handler_runs",
        ).seen_by("nobody_is_robbed", "kill worker", tasks="late long quick aquick"),
    ],
    "rescue": [
        bug(
            "nobody rescues the jobs of a dead neighbour on the same host",
            "worker/neighbours.py",
            "            self._rescuer.rescue_from([worker])\n",
            "",
            "crash/test_kill.py::test_a_worker_started_afterwards_on_the_same_host_rescues_at_once",
        ).seen_by("rescues_are_quick", "kill worker", tasks="nap late quick aquick"),
        bug(
            "a rescue wakes nobody",
            "worker/rescuer.py",
            "            self._store.wakeups.tell([job.queue for job in rescued])\n            self._job_due_in(0.0)\n",
            "",
            "contract/test_wakeups.py::test_a_rescue_wakes_its_own_worker_and_the_others",
        ).unseen("under load something else wakes the workers"),
    ],
    "success_once": [
        bug(
            "success in the handler's transaction does not check the fence",
            "store/sql/outcomes.sql",
            "       progressed_at = case when coalesce(cast(:done as text), cast(:total as text), cast(:note as text)) is null then progressed_at else @clock end\n where id = :id and state = 'running' and fence = :fence",
            "       progressed_at = case when coalesce(cast(:done as text), cast(:total as text), cast(:note as text)) is null then progressed_at else @clock end\n where id = :id and state = 'running'",
            "contract/test_leases.py::test_a_zombie_cannot_record_success_on_its_own_transaction",
        ).seen_by("success_is_of_its_holder", "freeze worker", tasks="late_ledger quick"),
        bug(
            "PostgreSQL: a handler that lost the lease still commits its effect",
            "store/attempts.py",
            "def _must_hold(ref: Ref, rows: list[Row]) -> None:\n    if not rows:",
            "def _must_hold(ref: Ref, rows: list[Row]) -> None:\n    if False:",
            "api/test_transactions.py::test_who_lost_the_lease_writes_nothing",
        ).seen_by("effects_committed_with_success_happen_once", "freeze worker", tasks="late_ledger quick"),
        bug(
            "a handler that forgot to commit counts as succeeded",
            "worker/outbox.py",
            'if self._store.db.read("recorded", id=held.id, fence=held.fence):',
            "if True:",
            "api/test_transactions.py::test_a_forgotten_commit_is_an_errored_attempt",
        ).seen_by("everything_ends", tasks="forgetful quick"),
    ],
    "final": [
        bug(
            "a succeeded job can be cancelled",
            "store/sql/operator_verbs.sql",
            " where id @any(ids) and state in ('queued', 'paused', 'failed',",
            " where id @any(ids) and state in ('succeeded', 'queued', 'paused', 'failed',",
            "contract/test_transitions.py::test_what_people_do_moves_a_job_as_the_table_says_or_is_refused",
        ).seen_by("jobs_move_as_the_lifecycle_says", tasks="quick hopeless resigned"),
        bug(
            "SQLite: a succeeded job can be retried",
            "store/sqlite/retry.sql",
            "state in ('failed', 'cancelled') and (key is null",
            "state in ('failed', 'cancelled', 'succeeded') and (key is null",
            "contract/test_transitions.py::test_what_people_do_moves_a_job_as_the_table_says_or_is_refused",
        ).seen_by("jobs_move_as_the_lifecycle_says", tasks="quick hopeless resigned"),
    ],
    "charging": [
        bug(
            "PostgreSQL: a claim charges no attempt",
            "store/postgres/claim.sql",
            "attempt = j.attempt + 1",
            "attempt = j.attempt",
            "contract/test_claim.py::test_a_claim_charges_the_attempt_and_says_who_holds_the_job",
        ).seen_by("attempts_are_counted", tasks="quick doze"),
        bug(
            "SQLite: a claim charges no attempt",
            "store/sqlite/claim.sql",
            "attempt = attempt + 1",
            "attempt = attempt",
            "contract/test_claim.py::test_a_claim_charges_the_attempt_and_says_who_holds_the_job",
        ).seen_by("attempts_are_counted", tasks="quick doze"),
        bug(
            "a released job is charged",
            "store/sql/release.sql",
            "fence = null, attempt = attempt - 1,",
            "fence = null, attempt = attempt,",
            "contract/test_history.py::test_a_release_is_not_charged_and_a_reschedule_is",
        ).seen_by("an_attempt_is_charged_by_its_outcome", "term worker", tasks="late long quick aquick"),
        bug(
            "a parked job is charged",
            "store/sql/outcomes.sql",
            "fence = null, attempt = attempt - 1,",
            "fence = null, attempt = attempt,",
            "work/test_requests.py::test_a_pause_parks_a_running_job_and_resume_goes_on_from_the_checkpoint",
        ).seen_by("an_attempt_is_charged_by_its_outcome", tasks="long along quick aquick"),
    ],
    "quarantine": [
        bug(
            "a job that ran among others is charged for the crash",
            "model/rescue.py",
            "attempt, suspicion, charged = attempt - 1, suspicion + 1, False",
            "suspicion, charged = suspicion + 1, True",
            "contract/test_suspects.py::test_a_crash_in_company_is_charged_to_nobody",
        ).seen_by("a_crash_is_charged_to_whoever_was_alone", "kill runner", tasks="nap doze"),
        bug(
            "a job that never runs alone is never charged",
            "model/rescue.py",
            "    if company and suspicion < FREE_LOSSES:\n",
            "    if company:\n",
            "contract/test_suspects.py::test_a_third_loss_in_a_row_is_charged_whatever_the_company",
        ).seen_by("a_crash_is_charged_to_whoever_was_alone", "kill worker", tasks="long along late"),
        bug(
            "losses that are not in a row add up",
            "store/sql/outcomes.sql",
            "fence = null, crashes = 0, suspicion = 0,",
            "fence = null,",
            "contract/test_suspects.py::test_an_attempt_that_ends_in_words_clears_the_suspect",
        ).seen_by("three_crashes_quarantine", "kill isolated", tasks="lone_flaky"),
        bug(
            "jobs of two claims by one worker count as running alone",
            "store/rescues.py",
            'lease["held"] > 1 or lease["leases"] > 1',
            'lease["held"] > 1',
            "contract/test_suspects.py::test_two_leases_of_one_worker_are_company_too",
        ).seen_by("a_crash_is_charged_to_whoever_was_alone", "kill worker", tasks="nap doze"),
        bug(
            "nothing is ever quarantined",
            "model/rescue.py",
            "elif charged and 0 < quarantine_after <= crashes:",
            "elif False:",
            "contract/test_rescue.py::test_three_lone_crashes_in_a_row_quarantine_a_job",
        ).seen_by("three_crashes_quarantine", "kill isolated", tasks="poison_exit nap"),
    ],
    "claimable": [
        bug(
            "a job that crashed in its last attempt is queued again",
            "model/rescue.py",
            "elif charged and attempt >= max_attempts:",
            "elif False:",
            "contract/test_rescue.py::test_a_stale_job_whose_attempts_are_used_up_fails_and_is_never_claimed_again",
        ).seen_by("everything_ends", "kill isolated", tasks="nap lone"),
        bug(
            "PostgreSQL: the schema accepts a queued job without attempts left",
            "store/postgres/migrations/0001_jobs.sql",
            "then attempt < max_attempts and num_nonnulls(",
            "then num_nonnulls(",
            "contract/test_transitions.py::test_a_queued_job_that_can_never_be_claimed_must_not_exist",
        ).unseen("nothing writes what the check refuses"),
    ],
    "keys": [
        bug(
            "PostgreSQL: jobs enqueued in bulk do not hold their keys",
            "store/columns.py",
            '    NOW: "@clock",\n    TRUE: "true",\n',
            '    NOW: "@clock",\n    TRUE: "null::boolean",\n',
            "contract/test_keys.py::test_while_unfinished_the_same_key_is_the_same_job",
            "contract/test_keys.py::test_equal_keys_in_one_call_are_one_job",
        ).seen_by("equal_jobs_are_one", tasks="keyed"),
        bug(
            "SQLite: the index does not keep keys unique",
            "store/sqlite/migrations/0001_jobs.sql",
            "create unique index @jobs_key",
            "create index @jobs_key",
            "contract/test_keys.py::test_while_unfinished_the_same_key_is_the_same_job",
        ).seen_by("producers_meet_no_error_of_their_own", "kill people", tasks="keyed"),
        bug(
            "SQLite: a running job gives up its key",
            "store/sqlite/keys.sql",
            "   and ((state in ('failed', 'cancelled') and",
            "   and ((state in ('failed', 'cancelled', 'running') and",
            "contract/test_keys.py::test_while_unfinished_the_same_key_is_the_same_job",
        ).seen_by("equal_jobs_are_one", tasks="keyed"),
        bug(
            "SQLite: a failed job gives up its key although it is to be returned",
            "store/sqlite/keys.sql",
            "('failed', 'cancelled') and :failed)",
            "('failed', 'cancelled'))",
            "contract/test_keys.py::test_an_idempotency_key_hands_the_failed_job_back_as_it_is",
        ).unseen("nothing there returns or retries by key"),
        bug(
            "PostgreSQL: in bulk, a failed job gives up its key although it is to be returned",
            "store/postgres/keys.sql",
            "(where after_failure <> 'return'))[1] = 'new',\n                        false)",
            "(where after_failure <> 'return'))[1] = 'new',\n                        true)",
            "contract/test_keys.py::test_an_idempotency_key_hands_the_failed_job_back_as_it_is",
        ).unseen("nothing there returns or retries by key"),
    ],
    "due": [
        bug(
            "SQLite: a claim takes jobs that are not due",
            "store/sqlite/claim.sql",
            "@in_lane(j, lane) and @due(j)",
            "@in_lane(j, lane) and @unexpired(j)",
            "contract/test_claim.py::test_run_at_is_honoured_by_every_claim_path",
            "contract/test_ahead.py::test_one_lane_leaves_what_is_not_due_yet",
        ).seen_by("nothing_starts_before_it_is_due", tasks="quick doze"),
        bug(
            "PostgreSQL: a claim takes jobs that are not due",
            "store/postgres/claim.sql",
            "@in_lane(j, only_lane) and @due(j) and (",
            "@in_lane(j, only_lane) and @unexpired(j) and (",
            "contract/test_claim.py::test_run_at_is_honoured_by_every_claim_path",
            "contract/test_ahead.py::test_one_lane_leaves_what_is_not_due_yet",
            "contract/test_told.py::test_what_is_not_due_is_left_in_a_lane_told_of",
        ).seen_by("nothing_starts_before_it_is_due", tasks="quick doze"),
    ],
    "order": [
        bug(
            "SQLite: low priorities come first",
            "store/sqlite/exchange.py",
            "}, reverse=True):",
            "}):",
            "contract/test_claim.py::test_jobs_come_by_priority_then_due_time_then_id_across_tasks_and_queues",
        ).seen_by("priorities_go_first", tasks="nap"),
        bug(
            "PostgreSQL: low priorities come first",
            "store/postgres/claim.sql",
            "order by j.priority desc, j.ready_at, j.id",
            "order by j.priority, j.ready_at, j.id",
            "contract/test_claim.py::test_batches_one_after_the_other_keep_the_order",
        ).seen_by("priorities_go_first", tasks="nap"),
    ],
    "pause": [
        bug(
            "SQLite: a claim ignores pauses",
            "store/sqlite/lanes.sql",
            " and not @paused(lane)",
            "",
            "contract/test_claim.py::test_a_paused_queue_or_task_takes_no_new_attempts",
        ).seen_by("a_pause_holds", tasks="doze nap quick"),
        bug(
            "PostgreSQL: a claim ignores pauses",
            "store/postgres/lanes.sql",
            "where (p.kind = 'queue' and p.name = lane.queue) or (p.kind = 'task' and p.name = lane.task))",
            "where false)",
            "contract/test_claim.py::test_a_paused_queue_or_task_takes_no_new_attempts",
        ).seen_by("a_pause_holds", tasks="doze nap quick"),
        bug(
            "a desk starts a job that a filter pause matches",
            "worker/intake.py",
            "            if pause is None:\n",
            "            if True:\n",
            "contract/test_holds.py::test_what_comes_later_is_claimed_and_given_back_as_held",
        ).seen_by("a_pause_holds", tasks="nap"),
        bug(
            "a desk does not notice that filter pauses have changed",
            "worker/intake.py",
            "        if jobs and (version is None or version != self._version):",
            "        if jobs and version is None:",
            "contract/test_holds.py::test_what_comes_later_is_claimed_and_given_back_as_held",
        ).seen_by("a_pause_holds", tasks="nap", engine="postgres"),
    ],
    "expiry": [
        bug(
            "SQLite: a claim takes expired jobs",
            "store/sqlite/claim.sql",
            "@in_lane(j, lane) and @due(j)",
            "@in_lane(j, lane) and j.ready_at <= @now",
            "contract/test_ahead.py::test_one_lane_leaves_what_expired",
            "work/test_worker.py::test_an_expired_job_is_not_run_even_if_nobody_has_cancelled_it_yet",
        ).seen_by("nothing_starts_after_its_expiry", tasks="expiring nap"),
        bug(
            "PostgreSQL: a claim from one lane takes expired jobs",
            "store/postgres/claim.sql",
            "@in_lane(j, only_lane) and @due(j) and (",
            "@in_lane(j, only_lane) and j.ready_at <= @now and (",
            "contract/test_told.py::test_told_of_all_lanes_it_takes_what_the_order_says",
        ).seen_by("nothing_starts_after_its_expiry", tasks="expiring nap"),
    ],
    "cancel": [
        bug(
            "a cancel is forgotten when the job is rescheduled",
            "store/sql/outcomes.sql",
            "set state = case when cancel_requested then 'cancelled' when pause_requested then 'paused' else 'queued' end,\n       run_at",
            "set state = case when pause_requested then 'paused' else 'queued' end,\n       run_at",
            "contract/test_transitions.py::test_a_request_outlives_the_attempt",
        ).seen_by("only_its_own_errors_are_charged", tasks="late_retry"),
        bug(
            "a cancel is forgotten when the job fails",
            "store/sql/outcomes.sql",
            "set state = case when cancel_requested then 'cancelled' else 'failed' end",
            "set state = 'failed'",
            "contract/test_transitions.py::test_a_request_outlives_the_attempt",
        ).seen_by("a_cancel_is_kept", tasks="late_fail"),
        bug(
            "a pause is forgotten when the job is rescheduled",
            "store/sql/outcomes.sql",
            "when pause_requested then 'paused' else 'queued' end,\n       run_at",
            "else 'queued' end,\n       run_at",
            "contract/test_transitions.py::test_a_request_outlives_the_attempt",
        ).seen_by("only_its_own_errors_are_charged", tasks="late_retry"),
        bug(
            "a rescue forgets a cancel",
            "model/rescue.py",
            "    if cancel:\n",
            "    if False:\n",
            "contract/test_transitions.py::test_a_request_outlives_the_attempt",
            "model/test_rescue.py::test_the_verdict",
        ).seen_by("a_cancel_is_kept", "kill worker", tasks="late quick aquick"),
    ],
    "transitions": [
        bug(
            "a failed job can be paused",
            "store/sql/pause.sql",
            " where id @any(ids) and state in ('queued', 'running')",
            " where id @any(ids) and state in ('queued', 'running', 'failed')",
            "contract/test_transitions.py::test_what_people_do_moves_a_job_as_the_table_says_or_is_refused",
        ).seen_by("jobs_move_as_the_lifecycle_says", tasks="quick hopeless resigned"),
        bug(
            "a running job can be deleted",
            "store/sql/operator_verbs.sql",
            "(:unfinished and state <> 'running' and source is null)",
            "(:unfinished and source is null)",
            "contract/test_transitions.py::test_what_people_do_moves_a_job_as_the_table_says_or_is_refused",
        ).unseen("nobody deletes unfinished jobs"),
    ],
    "cron": [
        bug(
            "a tick is taken without checking whether it was taken before",
            "store/sql/crons.sql",
            "where name = :name and next_at = :due and",
            "where name = :name and",
            "contract/test_crons.py::test_however_many_try_at_once_each_tick_has_one_job",
        )
        .and_also(
            "store/sql/crons.sql",
            "   and coalesce(last_at < :tick, true)\n",
            "",
        )
        .seen_by("a_tick_has_one_job"),
        bug(
            "a tick is taken although another worker has taken it",
            "store/sql/crons.sql",
            "where name = :name and next_at = :due and",
            "where name = :name and",
            "contract/test_crons.py::test_who_comes_late_with_an_old_view_changes_nothing",
        ).unseen("a second guard still keeps a tick from being taken twice"),
        bug(
            "a tick is taken again if the row was set back",
            "store/sql/crons.sql",
            "   and coalesce(last_at < :tick, true)\n",
            "",
            "contract/test_crons.py::test_no_tick_is_taken_twice_even_if_the_row_was_set_back",
        ).unseen("a second guard still keeps a tick from being taken twice"),
        bug(
            "a tick is taken, and its job enqueued in a second transaction that may never happen",
            "store/crons.py",
            "                    ids[cron.name] = self._enqueue(tx, taken[0], step.tick)\n",
            "",
            "contract/test_crons.py::test_a_tick_is_taken_with_its_job_or_not_at_all",
        )
        .and_also(
            "store/crons.py",
            "        if queues:\n",
            "        if queues:\n            with self._db.transaction() as tx:\n                ids[cron.name] = self._enqueue(tx, taken[0], step.tick)\n",
        )
        .unseen("a worker would have to die between two commits, microseconds apart"),
    ],
    "counted": [
        bug(
            "SQLite: what was folded is folded again",
            "store/sqlite/rollups.sql",
            "delete from @deltas where id <= :reached",
            "delete from @deltas where id < :reached",
            "contract/test_rollups.py::test_each_fold_is_a_bounded_step",
            "contract/test_rollups.py::test_folders_that_are_killed_lose_and_repeat_nothing",
        ).seen_by("what_happened_is_counted", "kill worker", tasks="quick", engine="sqlite"),
        bug(
            "SQLite: a success that is told again is counted again",
            "store/sqlite/rollups.sql",
            " where id in (select value from json_each(:ids)) and state = 'running' and fence = :fence",
            " where id in (select value from json_each(:ids)) and fence = :fence",
            "contract/test_rollups.py::test_what_is_told_again_after_a_lost_reply_is_not_counted_again",
            "contract/test_rollups.py::test_many_outcomes_of_one_trip_are_counted_each",
        ).unseen("on SQLite no reply is lost"),
        bug(
            "PostgreSQL: a success on the handler's own transaction is not counted",
            "store/postgres/migrations/0001_jobs.sql",
            "after update of cancel_requested, held_by, life, total on @jobs",
            "after update of cancel_requested, held_by, life on @jobs",
            "contract/test_rollups.py::test_success_on_the_handlers_own_transaction",
        ).seen_by("what_happened_is_counted", "kill worker", tasks="late_ledger quick"),
        bug(
            "PostgreSQL: jobs of one statement are counted as one",
            "store/postgres/migrations/0001_jobs.sql",
            "select max(created_at), count(*), left(queue",
            "select max(created_at), 1, left(queue",
            "contract/test_rollups.py::test_plain_inserts_of_other_programs",
            "contract/test_rollups.py::test_many_new_jobs",
        ).seen_by("what_happened_is_counted", "kill worker", tasks="quick"),
    ],
    "lost_reply": [
        bug(
            "a claim whose reply was lost is not looked up",
            "worker/exchange.py",
            "            self._claims.unknown += [trip.claim.wants.fence for trip in under_way if trip.claim and trip.claim_unknown]\n",
            "",
            "work/test_overlap.py::test_where_it_breaks_all_outcomes_are_sent_again_and_what_is_not_known_is_looked_up",
        ).unseen("the lease of the forgotten claim expires, and its jobs are rescued"),
        bug(
            "a broken connection counts as a commit that did not happen",
            "store/postgres/connect.py",
            "    if broken:\n        return OutcomeUnknown(",
            "    if broken:\n        return StoreUnavailable(",
            "contract/test_trip.py::test_a_session_that_ends_between_the_two_answers_leaves_the_claim_and_a_doubt",
        ).unseen("the server would have to die between a commit and its reply"),
        bug(
            "an outcome that is sent again counts as lost",
            "store/sql/attempts.sql",
            "and outcome not in ('crashed', 'lost'))",
            "and outcome not in ('crashed', 'lost', 'errored'))",
            "contract/test_history.py::test_an_outcome_sent_again_after_a_lost_reply_changes_nothing_and_is_not_lost",
        ).unseen("the server would have to die between a commit and its reply"),
    ],
    "unknown_task": [
        bug(
            "SQLite: a claim takes jobs of unknown tasks",
            "store/sqlite/lanes.sql",
            "where lane.task in (select value from json_each(:tasks)) and",
            "where",
            "contract/test_claim.py::test_unknown_tasks_stay_queued_untouched",
        ).seen_by("unknown_tasks_wait", tasks="quick doze"),
        bug(
            "PostgreSQL: a claim takes jobs of unknown tasks",
            "store/postgres/lanes.sql",
            "     where task = any(:tasks)\n",
            "     where true\n",
            "contract/test_claim.py::test_unknown_tasks_stay_queued_untouched",
        ).seen_by("unknown_tasks_wait", tasks="quick doze"),
    ],
    "shutdown": [
        bug(
            "heartbeats end when a worker begins to stop",
            "worker/worker.py",
            "                    self.desk.wait(BREATH)\n            self._shutdown.finish()\n",
            "                    self.desk.wait(BREATH)\n            self._heartbeat.stop()\n            self._shutdown.finish()\n",
            "crash/test_shutdown.py::test_leases_are_renewed_while_a_worker_drains",
        ).seen_by("nobody_is_robbed", "term worker", tasks="late long quick aquick"),
        bug(
            "a stopping worker gives no grace",
            "worker/worker.py",
            "now + AFTER_GRACE + (0.0 if self.asked else self._grace))",
            "now + AFTER_GRACE)",
            "work/test_worker.py::test_a_worker_that_stops_lets_handlers_finish_and_claims_nothing_more",
        ).seen_by("who_stops_gives_its_grace", "term worker", tasks="nap doze spawner"),
        bug(
            "a stopping worker does not release what did not finish",
            "worker/worker.py",
            "                self._desk.outbox.give_back(attempt)\n",
            "                self._desk.outbox.forget(attempt.held)\n",
            "work/test_worker.py::test_what_does_not_finish_in_its_grace_is_given_back_uncharged",
        ).unseen("it concerns handlers in the worker's own process, where plain workers run none"),
    ],
    "outage": [
        bug(
            "outcomes are dropped when the database is away",
            "worker/exchange.py",
            "            for trip in reversed(under_way):\n                self._outbox.put_back(trip)\n            raise",
            "            raise",
            "work/test_overlap.py::test_where_it_breaks_all_outcomes_are_sent_again_and_what_is_not_known_is_looked_up",
        ).seen_by("everything_ends", "server stopped", "cut backends", tasks="quick nap", engine="postgres"),
        bug(
            "a handler that could not reach the database is charged",
            "runners/execution.py",
            "    return isinstance(error, StoreUnavailable)\n",
            "    return False\n",
            "work/test_mishaps.py::test_a_handler_that_meets_an_absent_database_is_not_charged",
        ).seen_by("only_its_own_errors_are_charged", "server stopped", engine="postgres", tasks="once_ledger ledger"),
    ],
    "hints": [
        bug(
            "a worker does not look for work after it begins to listen",
            "worker/wakeups.py",
            '            events.emit("listening")\n            self._wakeups.wake()\n',
            '            events.emit("listening")\n',
            "work/test_listener.py::test_whoever_begins_to_listen_looks_for_work_after_that",
        ).unseen("under load something else wakes the workers"),
        bug(
            "a worker that listens on other channels does not look for what was said there before",
            "worker/wakeups.py",
            '        elif kind == "moved":\n            self._wakeups.look_everywhere()\n',
            "",
            "work/test_peers.py::test_whoever_listens_elsewhere_looks_after_that",
        ).unseen("under load something else wakes the workers"),
        bug(
            "a job that returns to the queue wakes nobody",
            "store/attempts.py",
            "        for queue in done.requeued:\n            self._wakeups.hint(queue, due_in=outcome.delay)\n",
            "",
            "contract/test_people.py::test_every_return_to_queued_wakes_and_so_do_requests",
        ).unseen("under load something else wakes the workers"),
        bug(
            "a worker without notifications does not poll",
            "worker/poller.py",
            "        wait = self.wait(next_due)\n",
            "        wait = None\n",
            "api/test_application.py::test_it_works_without_prepared_statements_and_without_notifications",
        ).unseen("under load something else wakes the workers"),
        bug(
            "every idle worker acts on a single job's wake-up",
            "model/peers.py",
            "        return (self.rank - channel) % self.count\n",
            "        return 0\n",
            "model/test_place.py::test_each_channel_has_a_first_and_a_second_worker",
        ).unseen("a wake-up for nothing only costs a look"),
        bug(
            "nobody looks in place of a worker that is gone",
            "worker/wakeups.py",
            "                slots.reserve.append((now + LATE, (queue, task, priority)))\n",
            "                pass\n",
            "work/test_peers.py::test_the_second_in_line_looks_a_moment_later_and_once",
        ).unseen("under load something else wakes the workers"),
        bug(
            "a worker that alone learns when a job falls due does not tell its peers",
            "worker/poller.py",
            '            self._store.wakeups.hint("", due_in=seconds)\n',
            "            pass\n",
            "work/test_peers.py::test_who_keeps_no_time_tells_those_who_do",
        ).unseen("under load something else wakes the workers"),
    ],
    "checkpoint": [
        bug(
            "a rescue loses the checkpoint",
            "store/sql/rescue.sql",
            "       expires_at = null,",
            "       checkpoint = null, expires_at = null,",
            "contract/test_leases.py::test_a_checkpoint_is_there_for_the_next_attempt",
        ).seen_by("a_checkpoint_is_there_for_the_next", "kill worker", tasks="checkpoints acheckpoints quick aquick"),
        bug(
            "SQLite: a claim does not return the checkpoint",
            "store/sqlite/exchange.py",
            "    values = [row[0], fence, *row[1:]]\n",
            "    values = [row[0], fence, *row[1:7], None, *row[8:]]\n",
            "contract/test_leases.py::test_a_checkpoint_is_there_for_the_next_attempt",
        ).seen_by("a_checkpoint_is_there_for_the_next", tasks="snoozer"),
    ],
    "retention": [
        bug(
            "SQLite: unfinished jobs are deleted",
            "store/sqlite/purge.sql",
            "(state = 'failed' and finished_at < @after(minus_failed))",
            "(state = 'failed' and finished_at < @after(minus_failed)) or finished_at is null",
            "contract/test_retention.py::test_each_kind_is_kept_for_its_time",
        ).seen_by("jobs_move_as_the_lifecycle_says", "kill people", tasks="quick nap"),
        bug(
            "PostgreSQL: unfinished jobs are deleted",
            "store/postgres/purge.sql",
            "(state = 'failed' and finished_at < @after(minus_failed))",
            "(state = 'failed' and finished_at < @after(minus_failed)) or finished_at is null",
            "contract/test_retention.py::test_each_kind_is_kept_for_its_time",
        ).seen_by("jobs_move_as_the_lifecycle_says", "kill people", tasks="quick nap"),
    ],
    "audit": [
        bug(
            "a change is made although it could not be recorded",
            "store/operator_verbs.py",
            "            call.record(tx, outcome(verb, ids, rows), [",
            "        with self._db.transaction() as tx:\n            call.record(tx, outcome(verb, ids, rows), [",
            "contract/test_audit.py::test_what_can_not_be_recorded_is_not_done",
        ).unseen("nobody takes the audit table away"),
        bug(
            "a call that was refused is not recorded",
            "store/operator_verbs.py",
            "            call.record(tx, outcome(verb, ids, rows), [",
            "            if rows:\n                call.record(tx, outcome(verb, ids, rows), [",
            "contract/test_audit.py::test_a_request_and_a_refusal_are_told_apart_from_a_change",
        ).unseen("nobody reads the audit there"),
        bug(
            "a bulk verb that was killed looks finished",
            "store/audit.py",
            "ended=False)",
            "ended=True)",
            "contract/test_audit.py::test_a_bulk_verb_whose_process_was_killed_is_unfinished_and_says_how_far_it_got",
        ).unseen("nobody reads the audit there"),
        bug(
            "a job does not show what a verb on many jobs did to it",
            "store/audit.py",
            "        if jobs:\n",
            "        if not jobs:\n",
            "contract/test_audit.py::test_a_bulk_verb_is_found_by_each_job_it_changed",
        ).unseen("nobody reads the audit there"),
        bug(
            "nobody carries on a bulk verb whose process was killed",
            "worker/watchdog.py",
            "            self._carry_on.begin()",
            "            pass",
            "http/test_bulk_calls.py::test_a_worker_carries_on_what_a_killed_server_had_begun",
        ).unseen("no bulk verbs are killed there"),
        bug(
            "a bulk verb that was taken over goes on in its old process, too",
            "store/sql/bulk_calls.sql",
            " where id = :id and holder = :holder\nreturning id\n\n-- name: take",
            " where id = :id and :holder is not null\nreturning id\n\n-- name: take",
            "contract/test_bulk_calls.py::test_a_holder_that_was_only_slow_does_no_more",
        ).unseen("no bulk verbs are killed there"),
        bug(
            "whoever carries on a bulk verb begins with the first job again",
            "store/sql/bulk_calls.sql",
            "reached = coalesce(:reached, reached), ",
            "",
            "contract/test_bulk_calls.py::test_a_job_that_failed_again_is_not_retried_twice",
        ).unseen("no bulk verbs are killed there"),
    ],
    "backlog": [
        bug(
            "SQLite: a claim reads all lanes in full",
            "store/sqlite/claim.sql",
            "                    limit :n))))",
            "                    limit :n + 1000000))))",
            "plans/test_sqlite.py::test_a_claim_from_many_lanes_takes_steps_for_what_it_takes",
        ).unseen("it only takes longer"),
    ],
    "upgrade": [
        bug(
            "a worker does not notice that the schema no longer serves it",
            "worker/watchdog.py",
            "        if look.misfit is not None:\n            self._misfit(look.misfit)\n",
            "",
            "crash/test_upgrade.py::test_a_schema_that_no_longer_serves_this_code_ends_its_workers_in_good_order",
        ).unseen("nobody upgrades the schema meanwhile"),
        bug(
            "a schema that no longer serves this code is accepted",
            "store/migrate.py",
            "    if oldest_code is not None and oldest_code > needed:",
            "    if False:",
            "contract/test_migrate.py::test_a_newer_schema_that_no_longer_serves_this_code_is_refused",
        ).unseen("nobody upgrades the schema meanwhile"),
    ],
    "sqlite": [
        bug(
            "commits do not wait for the disk",
            "store/sqlite/connect.py",
            '            self.db.execute(f"pragma synchronous = {settings.synchronous}")\n',
            '            self.db.execute("pragma synchronous = normal")\n',
            "contract/test_sqlite.py::test_our_connections_are_durable_by_default",
        ).unseen("no machine loses its power"),
        bug(
            "every connection checkpoints the log on its own",
            "store/sqlite/connect.py",
            '            self.db.execute("pragma wal_autocheckpoint = 0")\n',
            "",
            "contract/test_sqlite.py::test_our_connections_are_durable_by_default",
            "contract/test_sqlite.py::test_whoever_sees_the_log_too_long_makes_it_begin_anew",
        ).unseen("the log only grows or shrinks at other times"),
        bug(
            "a network file system is accepted",
            "store/sqlite/connect.py",
            "    if kind in NETWORK_FILE_SYSTEMS:",
            "    if False:",
            "contract/test_migrate.py::test_a_network_file_system_is_refused",
        ).unseen("the campaign uses no network file system"),
    ],
    "plain_sql": [
        bug(
            "PostgreSQL: an inserted row is not ready",
            "store/postgres/migrations/0001_jobs.sql",
            "ready_at         @instant default clock_timestamp(),",
            "ready_at         @instant,",
            "contract/test_enqueue.py::test_a_row_inserted_by_plain_sql_is_a_job",
        ).seen_by("producers_meet_no_error_of_their_own", "kill people", tasks="quick doze"),
    ],
    "adopted": [
        bug(
            "PostgreSQL: a job overwrites what others wrote to its row meanwhile",
            "store/postgres/adopt/write.sql",
            "(forced or (h.said in ({{shown:n.was}}, {{shown:n.state}})",
            "(forced or (h.said is not null",
            "adopt/test_postgres_rules.py::test_a_request_that_nobody_saw_in_time_still_counts",
        ).unseen("the campaign adopts no tables"),
        bug(
            "PostgreSQL: an outcome waits for a locked row",
            "store/postgres/adopt/write.sql",
            "where u.{{id}} = any(array(select n.at from n)) for no key update skip locked",
            "where u.{{id}} = any(array(select n.at from n)) for no key update",
            "adopt/test_postgres_foreign.py::test_what_a_locked_row_should_be_told_is_owed_until_it_is_free",
        ).unseen("the campaign adopts no tables"),
        bug(
            "PostgreSQL: a claim waits for a locked table",
            "store/postgres/adopt/open.sql",
            "        lock table {{tables}} in row exclusive mode nowait;\n",
            "",
            "adopt/test_postgres_foreign.py::test_a_table_that_can_not_be_worked_delays_no_native_job_and_heals",
        ).unseen("the campaign adopts no tables"),
        bug(
            "PostgreSQL: a table that can't be worked stands before native jobs",
            "store/postgres/adopt/open.sql",
            "        perform @rest_source({{source}}, now + interval '1 second', sqlerrm);\n",
            "",
            "adopt/test_postgres_foreign.py::test_a_table_that_can_not_be_worked_delays_no_native_job_and_heals",
        ).unseen("the campaign adopts no tables"),
        bug(
            "PostgreSQL: a row keeps the arguments it had when its job was made",
            "store/postgres/adopt/take.sql",
            "case when r.args::text <> n.args then r.args end",
            "null::json",
            "adopt/test_postgres_rules.py::test_arguments_are_the_rows_at_claim",
        ).unseen("the campaign adopts no tables"),
        bug(
            "PostgreSQL: a job is claimed while its row goes on saying that it waits",
            "store/postgres/adopt/take.sql",
            "select f.id, f.args from free f join written w on w.at = f.at",
            "select n.id, null::json from n",
            "adopt/test_postgres_rules.py::test_counts_are_written_to_a_second_table",
        ).unseen("the campaign adopts no tables"),
        bug(
            "SQLite: a row that can't be taken keeps back all others",
            "store/sqlite/exchange.py",
            "if len(ids) > 1:\n                return [id for id in ids if self._take(db, [id], claim)]",
            "if len(ids) > 1:\n                return []",
            "adopt/test_sqlite_rules.py::test_a_row_that_its_table_does_not_let_us_take_keeps_no_other_job_back",
        ).unseen("the campaign adopts no tables"),
        bug(
            "PostgreSQL: a renamed column makes foreign writes fail",
            "store/postgres/adopt/in.sql",
            "< {{watched_count}} then",
            "< 0 then",
            "adopt/test_postgres_foreign.py::test_who_writes_to_a_table_with_a_renamed_column_does_not_fail",
        ).unseen("the campaign adopts no tables"),
        bug(
            "PostgreSQL: a foreign worker is rescued though its row is done",
            "store/postgres/adopt/lapsed.sql",
            "found and r.said = 'running' and (r.lease_ends is null",
            "found and (r.lease_ends is null",
            "adopt/test_postgres_rules.py::test_a_foreign_worker_that_finished_in_the_meantime_is_not_rescued",
        ).unseen("the campaign adopts no tables"),
        bug(
            "PostgreSQL: the sweep misses jobs whose rows are gone",
            "store/postgres/adopt/sweep.sql",
            "reached, strays;\n        if reached is null then",
            "reached, strays;\n        delete from @inbox;\n        if reached is null then",
            "adopt/test_postgres_rules.py::test_the_sweep_alone_converges",
        ).unseen("the campaign adopts no tables"),
    ],
    "hostile": [
        bug(
            "a worker acts on every vain notification at once",
            "worker/poller.py",
            "            self._rest = self._rest or SHORTEST\n",
            "            self._rest = 0.0\n",
            "work/test_vain_wakeups.py::test_a_flood_makes_few_looks",
        ).unseen("the campaign forges no notifications"),
        bug(
            "what a handler's process returns is not checked on arrival",
            "runners/arrivals.py",
            "            return returned(held, checked(result, limit=self._max_result))\n",
            "            return returned(held, result)\n",
            "crash/test_hostile.py::test_a_worker_outlives_handlers_that_attack_its_line",
        ).unseen("no handler of the campaign writes to its worker's socket"),
        bug(
            "errors from a handler's process are stored unchecked",
            "runners/arrivals.py",
            "            error = None if said.error is None else kept(said.error, self.hiding(held)).at(held.task)\n",
            "            error = said.error\n",
            "crash/test_hostile.py::test_a_worker_outlives_handlers_that_attack_its_line",
        ).unseen("no handler of the campaign writes to its worker's socket"),
        bug(
            "workers follow symbolic links to the directory they share",
            "worker/neighbours.py",
            "os.O_RDONLY | os.O_NOFOLLOW | DIRECTORY",
            "os.O_RDONLY | DIRECTORY",
            "work/test_neighbours.py::test_a_link_that_was_there_before_is_not_followed_and_the_worker_says_so",
        ).unseen("the campaign creates no symbolic links"),
        bug(
            "a role that may only enqueue can write a job's outcome",
            "store/postgres/roles.py",
            "if column.enqueued is not NOW)\n",
            'if column.enqueued is not NOW) + ("state", "fence", "attempt")\n',
            "crash/test_roles.py::test_forgers_run_nothing_and_change_nothing",
        ).unseen("every session of the campaign owns the tables"),
        bug(
            "names may contain terminal escape sequences",
            "model/text.py",
            "    if found is not None:\n",
            "    if False:\n",
            "cli/test_hostile.py::test_a_file_of_settings_takes_no_such_name",
        ).unseen("no text of the campaign contains escape sequences"),
        bug(
            "text written by plain SQL is shown unescaped",
            "harmless.py",
            '    return re.sub(UNSAFE, lambda found: found[0] if lines and found[0] in "\\n\\t" else written(found[0]), text)\n',
            "    return text\n",
            "model/test_harmless.py::test_nothing_that_is_shown_can_be_obeyed",
        ).unseen("no text of the campaign contains escape sequences"),
    ],
    "http": [
        bug(
            "job tokens are not checked",
            "model/token.py",
            "    if not hmac.compare_digest(data[:_SIGNATURE], _signature(secret, said)):\n",
            "    if not said:\n",
            "http/test_tokens.py::test_a_forged_token_is_refused_without_a_statement",
        ).unseen(OVER_HTTP),
        bug(
            "the token of one job opens another",
            "http/gate.py",
            '        if claims is None or claims.id != request.path_params["id"]:\n',
            "        if claims is None:\n",
            "http/test_tokens.py::test_unknown_wrong_foreign_and_expired_get_the_same_answer",
        ).unseen(OVER_HTTP),
        bug(
            "the token of a job opens the one that has its id after a restore",
            "http/call.py",
            "        if self.claims is not None and self.claims.created_at != job.created_at:\n",
            "        if False:\n",
            "http/test_tokens.py::test_unknown_wrong_foreign_and_expired_get_the_same_answer",
        ).unseen(OVER_HTTP),
        bug(
            "a token never expires",
            "model/token.py",
            "    if int(expires) and int(expires) <= now:\n",
            "    if False:\n",
            "http/test_tokens.py::test_python_makes_tokens_with_a_scope_and_an_end",
        ).unseen(OVER_HTTP),
        bug(
            "a token that reads can also cancel",
            "http/gate.py",
            '        if scope == "control" and claims.scope != "control":\n',
            "        if False:\n",
            "http/test_access.py::test_every_role_and_token_at_every_route",
        ).unseen(OVER_HTTP),
        bug(
            "whoever joins a job may cancel it",
            "http/submit.py",
            '    return job, job.token("control" if job.created else "read")',
            '    return job, job.token("control")',
            "http/test_submit.py::test_who_joined_a_job_can_only_read_it",
        ).unseen(OVER_HTTP),
        bug(
            "a token shows what attempts wrote, although their task does not allow it",
            "http/status.py",
            'call.claims is None or "output" in _allowed(call, task)',
            "True",
            "http/test_server.py::test_output_comes_with_the_events_for_those_who_may_see_it",
        ).unseen(OVER_HTTP),
        bug(
            "a token cancels jobs of a task that does not allow it",
            "http/status.py",
            "    if call.claims is not None and verb not in _allowed(call, job.task):\n",
            "    if False:\n",
            "http/test_status.py::test_a_token_steers_only_where_the_task_allows_it",
        ).unseen(OVER_HTTP),
        bug(
            "a role is not checked",
            "http/gate.py",
            "        if not suffices(found.role, role):\n",
            "        if False:\n",
            "http/test_access.py::test_every_role_and_token_at_every_route",
        ).unseen(OVER_HTTP),
        bug(
            "an API key is not compared",
            "store/credentials.py",
            '        if not rows or not hmac.compare_digest(rows[0].pop("digest"), digest_of(text)):\n',
            '        if not rows or not hmac.compare_digest(rows[0].pop("digest")[:0], digest_of(text)[:0]):\n',
            "http/test_access.py::test_a_key_that_is_wrong_or_revoked_opens_nothing",
        ).unseen(OVER_HTTP),
        bug(
            "what a proxy forwards counts as from this machine",
            "http/gate.py",
            "is_loopback(request.client.host) and not proxied\n",
            "is_loopback(request.client.host)\n",
            "http/test_access.py::test_others_are_not_taken_for_this_machine",
        ).unseen(OVER_HTTP),
        bug(
            "a page of another site may submit jobs",
            "http/gate.py",
            "        if foreign:\n",
            "        if False:\n",
            "http/test_access.py::test_pages_of_other_sites_may_not_submit_where_everyone_may",
        ).unseen(OVER_HTTP),
        bug(
            "a page of another site may look by the address of this machine",
            "http/gate.py",
            '            if not (_same_origin(request) or request.headers.get("sec-fetch-mode") == "navigate"):\n',
            "            if False:\n",
            "http/test_access.py::test_pages_of_other_sites_may_not_look_from_this_machine",
        ).unseen(OVER_HTTP),
        bug(
            "a page of another site may do what everyone may if it shows any token",
            "http/gate.py",
            "            if found is not None:\n                return found\n        if foreign:\n",
            "            if found is not None:\n                return found\n        if foreign and not _bearer(request):\n",
            "http/test_access.py::test_who_shows_a_token_that_the_rule_knows_may_come_from_another_site",
        ).unseen(OVER_HTTP),
        bug(
            "strangers are told where the database is",
            "http/problems.py",
            "next((text for kind, text in AWAY if isinstance(error, kind)), None) or detail_of(error)",
            "detail_of(error)",
            "http/test_bad_input.py::test_while_the_database_is_away_clients_are_told_to_come_back",
        ).unseen(OVER_HTTP),
        bug(
            "an API key is taken from an address",
            "http/gate.py",
            "            if given.startswith(access.PREFIX):\n",
            "            if False:\n",
            "http/test_access.py::test_a_key_in_an_address_opens_nothing",
        ).unseen(OVER_HTTP),
        bug(
            "events go on when their token has expired",
            "http/call.py",
            "        return math.inf if self.claims.expires_at is None else self.claims.expires_at - time.time()\n",
            "        return math.inf\n",
            "http/test_tokens.py::test_events_end_with_their_token",
        ).unseen(OVER_HTTP),
        bug(
            "clients that wait are not answered when the server stops",
            "http/watch.py",
            "                if stopping():\n                    self._let_go()\n                    return\n",
            "",
            "http/test_server.py::test_waiting_clients_are_answered_when_a_server_stops",
        ).unseen(OVER_HTTP),
        bug(
            "a client that has left is waited for",
            "http/watch.py",
            "            left.add_done_callback(give_up)\n",
            "            pass\n",
            "http/test_bad_input.py::test_a_client_that_goes_away_is_not_waited_for",
        ).unseen(OVER_HTTP),
        bug(
            "tasks that don't say so are reachable",
            "http/submit.py",
            "    if task is None or task._defaults.http is None:\n",
            "    if task is None:\n",
            "http/test_submit.py::test_only_tasks_that_say_so_are_reachable",
        ).unseen(OVER_HTTP),
        bug(
            "many jobs are changed without a look at how many they are",
            "http/bulk.py",
            "        if found.jobs > call.body.expected:\n",
            "        if False:\n",
            "http/test_operators.py::test_more_jobs_than_were_seen_are_not_changed",
        ).unseen(OVER_HTTP),
        bug(
            "an answer is not as the API's description says",
            "http/jobs.py",
            "page.next, page.cut))\n",
            "page.next, int(page.cut)))\n",
            "http/test_openapi.py::test_requests_get_the_answers_that_are_described",
        ).unseen(OVER_HTTP),
        bug(
            "a misspelt parameter of a query is passed over",
            "http/operator_documents.py",
            "class JobsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):\n",
            "class JobsQuery(msgspec.Struct, frozen=True):\n",
            "http/test_operators.py::test_a_wrong_query_is_refused_and_named",
        ).unseen(OVER_HTTP),
        bug(
            "several drains run in a process at once",
            "http/drain.py",
            "    if app in _draining:\n",
            "    if False:\n",
            "http/test_drain.py::test_one_drain_at_a_time",
        ).unseen(OVER_HTTP),
        bug(
            "each waiting client reads for itself",
            "http/watch.py",
            "in _parts(list(self._waiting), MOST):\n",
            "in _parts(list(self._waiting), 1):\n",
            "http/test_status.py::test_thousands_of_waiting_clients_cost_a_few_reads_a_second_and_write_nothing",
        ).unseen(OVER_HTTP),
        bug(
            "each client that begins to wait reads for itself",
            "http/watch.py",
            "                self._next = clock() + GATHER\n",
            "                self._next = 0.0\n",
            "http/test_status.py::test_clients_that_come_back_for_more_are_read_together",
        ).unseen(OVER_HTTP),
        bug(
            "an ETag that a proxy has changed is not recognised",
            "http/documents.py",
            "    return etag(job).strip('\"') in re.findall(r'\"([0-9a-f]{24})', known)\n",
            "    return etag(job) == known\n",
            "http/test_status.py::test_proxies_may_change_an_etag_as_they_do",
        ).unseen(OVER_HTTP),
        bug(
            "clients use up the files that the database needs",
            "http/server.py",
            "        if len(self.connections) > self._room.connections:\n",
            "        if False:\n",
            "http/test_server.py::test_more_connections_than_there_is_room_for_cost_neither_the_log_nor_the_database",
        ).unseen(OVER_HTTP),
        bug(
            "who was refused early keeps the connection",
            "http/server.py",
            "        refused = self.conn.our_state is h11.DONE",
            "        refused = False",
            "http/test_server.py::test_a_client_that_sends_its_headers_slowly_is_cut_off",
        ).unseen(OVER_HTTP),
        bug(
            "nonsense within a request fills the log",
            "http/server.py",
            "            self.cycle.disconnected = True\n",
            "            pass\n",
            "http/test_server.py::test_nonsense_within_a_request_does_not_fill_the_log",
        ).unseen(OVER_HTTP),
        bug(
            "a request of two lengths is read by one of them",
            "http/server.py",
            "        if len(stated) == 2:\n",
            "        if False:\n",
            "http/test_server.py::test_a_request_of_two_lengths_is_refused_and_what_follows_is_not_read",
        ).unseen(OVER_HTTP),
    ],
}

BUGS = [bug for bugs in GUARANTEES.values() for bug in bugs]


def promises_of_tests() -> dict[str, set[str]]:
    """For each test that must catch something: the names of the promises it stands behind."""
    found: dict[str, set[str]] = {}
    for name, bugs in GUARANTEES.items():
        for test in (test for bug in bugs for test in bug.tests):
            found.setdefault(test, set()).add(name)
    return found
