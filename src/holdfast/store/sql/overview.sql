-- What screens show: counts and samples. Each statement reads a bounded amount unless it says otherwise.

-- name: counts
-- How many jobs are in each state, by queue and task. Reads the whole table: for summaries and tests, not for screens.
select queue, task, state, count(*) as jobs, cast(sum(pending) as bigint) as pending
  from @jobs
 group by queue, task, state

-- name: failures
-- Why jobs failed: how many by task and error code. Walks the index of failed jobs.
select task, error_code, count(*) as jobs
  from @jobs
 where failed_at is not null
 group by task, error_code
 order by count(*) desc, task, error_code

-- name: failed_lately
-- The jobs that failed most recently. Walks the index of failed jobs.
select id, queue, task, source, source_id, attempt, failed_at, error_code, substr(error_message, 1, 300) as error_message
  from @jobs
 where failed_at is not null
 order by failed_at desc
 limit :most

-- name: failed_depth
-- How many of the most recent failures there are, by queue and task. Counts no more than `limit`.
select queue, task, count(*) as jobs
  from (select queue, task from @jobs where failed_at is not null order by failed_at desc limit :limit) f
 group by queue, task

-- name: running
-- Of the jobs that leases name, the running ones, the longest running first.
select id, queue, task, fence, worker, attempt, max_attempts, started_at, done, total, note, pause_requested,
       cancel_requested, source, source_id
  from @jobs
 where id @any(ids) and state = 'running'
 order by started_at, id
 limit :most

-- name: running_depth
-- Of the jobs that leases name, how many run, by queue, task and worker.
select queue, task, worker, count(*) as jobs
  from @jobs
 where id @any(ids) and state = 'running'
 group by queue, task, worker

-- name: lately
-- How many jobs were enqueued and how many ended recently, by queue, among the newest before an id. Walks a bounded part of
-- the primary key.
select queue, count(*) as jobs, sum(case when came then 1 else 0 end) as came,
       sum(case when ended then 1 else 0 end) as ended, min(case when came then created_at end) as came_since,
       min(case when ended then finished_at end) as ended_since, min(id) as lowest
  from (select id, queue, created_at, finished_at, created_at > @after(minus_span) as came,
               finished_at > @after(minus_span) as ended
          from @jobs where id < :before order by id desc limit :most) newest
 group by queue
