-- Jobs, read by id or found by a filter.

-- name: get
select @columns(listed) from @jobs
 where id = :id

-- name: list
-- These jobs, newest first.
select @columns(listed) from @jobs
 where id @any(ids)
 order by id desc

-- name: marks
-- What these jobs look like to those who watch them: nothing that may be long but the note.
select id, state, life, attempt, run_at, pause_requested, cancel_requested, done, total, note, progressed_at from @jobs
 where id @any(ids)

-- name: newest
-- The newest job before this id: where ids are sparse, a walk skips the gap.
select max(id) as id from @jobs where id < :before

-- name: find
-- The newest jobs that match, between two ids. The caller bounds how far apart these are.
select id from @jobs
 where id < :before and id > :after
   and @matching
 order by id desc
 limit :limit

-- name: find_of
-- Which of these jobs match.
select id from @jobs
 where id @any(ids)
   and @matching
 order by id desc
 limit :limit

-- name: failed_ids
-- The jobs that failed most recently. Walks the index of failed jobs.
select id from @jobs where failed_at is not null order by failed_at desc limit :limit

-- name: error_groups
-- All failed jobs by their error and task: how many, when first and last, and the newest. Reads the index of errors alone.
select error_fingerprint, task, count(*) as jobs, min(failed_at) as first_at, max(failed_at) as last_at, max(id) as newest
  from @jobs
 where error_fingerprint is not null and failed_at is not null
 group by error_fingerprint, task

-- name: error_groups_of
-- The same of the jobs that match, failed or not. Looks through all jobs with an error.
select error_fingerprint, task, count(*) as jobs, min(coalesce(failed_at, started_at, created_at)) as first_at,
       max(coalesce(failed_at, started_at, created_at)) as last_at, max(id) as newest
  from @jobs
 where error_fingerprint is not null and (:every or id @any(ids))
   and @matching
 group by error_fingerprint, task

-- name: await
-- Somebody waits for this job: whoever finishes it sends a wake-up.
update @jobs set awaited = true
 where id = :id and not awaited and state in ('queued', 'running', 'paused')
