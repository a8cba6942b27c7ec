-- Jobs, read in this database's own way.

-- name: running_ids
-- What the leases name: all that runs, and a little that has just ended.
select distinct j.value as id from @leases l, json_each(l.job_ids) j

-- name: pending_work
-- How much work is pending, by queue and task: in jobs that run, and in all that are unfinished. Looks at the jobs
-- on the list, by their ids, and at no others: `cross join` keeps SQLite to that order.
select j.queue, j.task, coalesce(sum(j.pending) filter (where j.state = 'running'), 0) as running,
       sum(j.pending) as unfinished
  from @pending p cross join @jobs j on j.id = p.job_id
 where j.state in ('queued', 'running', 'paused') and j.pending > 0
 group by j.queue, j.task

-- name: pace
-- How quickly jobs of these tasks went of late: of those enqueued just before this one, how many ended within the last
-- while, and since when. Walks the primary key, a bounded way.
select count(*) as ended, (julianday(@now) - julianday(min(finished_at))) * 86400.0 as seconds
  from (select task, finished_at from @jobs where id < :id order by id desc limit :most) recent
 where task in (select value from json_each(:tasks)) and finished_at > @after(minus_span)
