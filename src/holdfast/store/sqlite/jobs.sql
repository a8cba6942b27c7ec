-- Jobs, read in this database's own way.

-- name: running_ids
-- The jobs that leases name: all that run, and a few that have just ended.
select distinct j.value as id from @leases l, json_each(l.job_ids) j

-- name: pending_work
-- How much work is pending, by queue and task: in running jobs, and in all unfinished ones. Reads only the jobs on the
-- list, by their ids: `cross join` makes SQLite keep that order.
select j.queue, j.task, coalesce(sum(j.pending) filter (where j.state = 'running'), 0) as running,
       sum(j.pending) as unfinished
  from @pending p cross join @jobs j on j.id = p.job_id
 where j.state in ('queued', 'running', 'paused') and j.pending > 0
 group by j.queue, j.task

-- name: pace
-- How fast jobs of these tasks have been finishing: of those enqueued just before this one, how many ended recently, and
-- since when. Walks a bounded part of the primary key.
select count(*) as ended, (julianday(@now) - julianday(min(finished_at))) * 86400.0 as seconds
  from (select task, finished_at from @jobs where id < :id order by id desc limit :most) recent
 where task in (select value from json_each(:tasks)) and finished_at > @after(minus_span)

-- name: grouped_ids
-- The jobs with one of these errors. Walks the index of errors.
select id from @jobs where error_fingerprint in (select value from json_each(:groups)) limit :limit

-- name: rows_ids
-- The jobs of these rows of adopted tables.
select id from @jobs
 where source is not null and source in (select value from json_each(:sources))
   and source_id in (select value from json_each(:rows))
