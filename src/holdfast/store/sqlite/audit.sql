-- name: lists_job
-- Is the job in this row of audit_jobs?
:job_id in (select value from json_each(job_ids))
