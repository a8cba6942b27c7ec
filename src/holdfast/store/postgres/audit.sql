-- name: lists_job
-- Is the job in this row of audit_jobs?
:job_id = any(job_ids)
