-- Jobs, read in this database's own way.

-- name: running_ids
-- What the leases name: all that runs, and a little that has just ended.
select distinct unnest(job_ids) as id from @leases

-- name: pending_work
-- How much work is pending, by queue and task: in jobs that run, and in all that are unfinished. Looks at the jobs
-- on the list, by their ids, and at no others.
select queue, task, coalesce(sum(pending) filter (where state = 'running'), 0)::bigint as running,
       sum(pending)::bigint as unfinished
  from @jobs
 where id = any(array(select job_id from @pending)) and state in ('queued', 'running', 'paused') and pending > 0
 group by queue, task

-- name: pace
-- How quickly jobs of these tasks went of late: of those enqueued just before this one, how many ended within the last
-- while, and since when. Walks the primary key, a bounded way.
select count(*) as ended, extract(epoch from @now - min(finished_at))::float8 as seconds
  from (select task, finished_at from @jobs where id < :id order by id desc limit :most) recent
 where task = any(:tasks) and finished_at > @after(minus_span)
