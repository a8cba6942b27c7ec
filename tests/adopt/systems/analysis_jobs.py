"""Claim Check: `claim_next_job()` takes a queued row, or one whose claim is older than ten minutes, and counts attempts
as it claims. Clients ask for one job's status by its id and token."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from tests.adopt.systems.system import LONG_AGO, MAX_ATTEMPTS, NOW, System, Taken

# As the database has it: a function on PostgreSQL, the same statement sent by the client on SQLite.
CLAIM = """
    update analysis_jobs set status = 'running', claimed_at = {now}, claim_id = {new_uuid}, attempts = attempts + 1,
                             updated_at = {now}
     where id = (
           select id from analysis_jobs
            where status = 'queued' and attempts < 3
               or status = 'running' and claimed_at < {ago}
            order by created_at limit 1 {skip_locked})
    returning id, input_type, input_value, normalized_input, cache_key, attempts, request_id
"""
FUNCTION = f"""
    create function claim_next_job(seconds float8) returns table (
        id uuid, input_type text, input_value text, normalized_input text, cache_key text, attempts int,
        request_id text)
    language sql as $$
    {CLAIM.replace("{ago}", "clock_timestamp() - make_interval(secs => seconds)")}
    $$
"""


class AnalysisJobs(System):
    table = "analysis_jobs"
    preset = "claim-check"
    subject = "input_value"
    waiting, running, done = "queued", "running", "done"
    counting, attempts, keeps_attempts = "at_claim", "attempts", True
    ddl = """
        create table analysis_jobs (
            id {uuid} primary key default {new_uuid},
            created_at {instant} not null default ({now}),
            updated_at {instant} not null default ({now}),
            status text not null default 'queued' check (status in ('queued', 'running', 'done', 'failed')),
            input_type text not null check (input_type in ('url', 'text', 'image')),
            input_value text not null,
            normalized_input text,
            cache_key text unique,
            job_token {uuid} not null default {new_uuid},
            attempts int not null default 0,
            claimed_at {instant},
            claim_id {uuid},
            last_error_code text,
            last_error_message text,
            perplexity_latency_ms int,
            bs_score numeric(3,1),
            result_json {json},
            model_used text,
            request_id text
        );

        create index analysis_jobs_claim on analysis_jobs (status, claimed_at);

        create index analysis_jobs_token on analysis_jobs (job_token)
    """

    def create(self) -> None:
        super().create()
        if self.db.engine == "postgres":
            self.db.script(FUNCTION)

    def leave_rows(self) -> None:
        error = {"last_error_code": "TIMEOUT", "last_error_message": "the model did not answer"}
        rows: dict[str, dict[str, Any]] = {
            "waiting": {},
            "tried": {**error, "attempts": 1},
            "used-up": {**error, "attempts": 3},
            "alive": {"status": "running", "attempts": 1, "claimed_at": NOW},
            "dead": {"status": "running", "attempts": 1, "claimed_at": LONG_AGO},
            "last-chance": {"status": "running", "attempts": 3, "claimed_at": LONG_AGO},
            "done": {"status": "done", "attempts": 1, "bs_score": 4.5, "result_json": "{}", "model_used": "sonar-pro"},
            "failed": {**error, "status": "failed", "attempts": 3},
        }
        for kind, columns in rows.items():
            if "claimed_at" in columns:
                columns["claim_id"] = str(uuid4())
            self.leave(input_type="text", input_value=kind, cache_key=kind, created_at=LONG_AGO, **columns)

    def submit(self, subject: str) -> str:
        return str(self.db.value("""
            insert into analysis_jobs (input_type, input_value, normalized_input, cache_key, request_id)
            values ('text', :subject, lower(:subject), 'sha256:' || :subject, 'req-' || :subject) returning id
        """, subject=subject))  # fmt: skip

    def claim(self, worker: str) -> Taken | None:
        text = "select * from claim_next_job((:seconds)::float8)" if self.db.engine == "postgres" else CLAIM
        found = self.db.row(text, seconds=self.lease)
        return None if found is None else Taken(found["id"], found["input_value"])

    def finish(self, id: str, worker: str) -> int:
        """It has written a claim's id, and never looks at it again."""
        return self.db.changed("""
            update analysis_jobs set status = 'done', bs_score = 5.5, result_json = '{"bunk_score": 5.5}',
                   model_used = 'sonar-pro', perplexity_latency_ms = 900, updated_at = {now}
             where id = :id and status = 'running'
        """, id=id)  # fmt: skip

    def fail(self, id: str, worker: str) -> int:
        return self.db.changed("""
            update analysis_jobs set status = case when attempts < :most then 'queued' else 'failed' end,
                   last_error_code = 'API_ERROR', last_error_message = 'the model did not answer', updated_at = {now}
             where id = :id and status = 'running'
        """, id=id, most=MAX_ATTEMPTS)  # fmt: skip

    def job_status(self, id: str, token: str) -> dict[str, Any] | None:
        """What `job_status?job_id=…&job_token=…` answers."""
        found = self.db.row("""
            select status, id as job_id, job_token, attempts, model_used, perplexity_latency_ms, updated_at,
                   case when status = 'done' then bs_score end as bs_score,
                   case when status = 'done' then result_json end as result_json,
                   case when status = 'failed' then last_error_code end as last_error_code,
                   case when status = 'failed' then last_error_message end as last_error_message
              from analysis_jobs where id = :id and job_token = :token
        """, id=id, token=token)  # fmt: skip
        return found

    def stale(self) -> list[str]:
        found = self.db.rows(
            "select id from analysis_jobs where status = 'running' and claimed_at < {ago}", seconds=self.lease
        )
        return [row["id"] for row in found]

    def wrong(self) -> list[dict[str, Any]]:
        return self.db.rows("""
            select * from analysis_jobs
             where status = 'running' and (claimed_at is null or claim_id is null or attempts < 1)
                or status = 'done' and (bs_score is null or result_json is null or model_used is null)
                or status = 'failed' and last_error_code is null
        """)  # fmt: skip
