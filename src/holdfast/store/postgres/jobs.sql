-- Jobs, read in this database's own way.

-- name: running_ids
-- The jobs that leases name: all that run, and a few that have just ended.
select distinct unnest(job_ids) as id from @leases

-- name: pending_work
-- How much work is pending, by queue and task: in running jobs, and in all unfinished ones. Reads only the jobs on the
-- list, by their ids.
select queue, task, coalesce(sum(pending) filter (where state = 'running'), 0)::bigint as running,
       sum(pending)::bigint as unfinished
  from @jobs
 where id = any(array(select job_id from @pending)) and state in ('queued', 'running', 'paused') and pending > 0
 group by queue, task

-- name: pace
-- How fast jobs of these tasks have been finishing: of those enqueued just before this one, how many ended recently, and
-- since when. Walks a bounded part of the primary key.
select count(*) as ended, extract(epoch from @now - min(finished_at))::float8 as seconds
  from (select task, finished_at from @jobs where id < :id order by id desc limit :most) recent
 where task = any(:tasks) and finished_at > @after(minus_span)

-- name: grouped_ids
-- The jobs with one of these errors. Walks the index of errors.
select id from @jobs where error_fingerprint = any(:groups::text[]) limit :limit

-- name: rows_ids
-- The jobs of these rows of adopted tables.
select id from @jobs
 where source is not null and source = any(:sources::text[]) and source_id = any(:rows::text[])
