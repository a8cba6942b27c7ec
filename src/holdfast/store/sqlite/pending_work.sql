-- How much work is pending, by queue and task: in jobs that run, and in all that are unfinished. Looks at the jobs
-- on the list, by their ids, and at no others: `cross join` keeps SQLite to that order.
select j.queue, j.task, coalesce(sum(j.pending) filter (where j.state = 'running'), 0) as running,
       sum(j.pending) as unfinished
  from @pending p cross join @jobs j on j.id = p.job_id
 where j.state in ('queued', 'running', 'paused') and j.pending > 0
 group by j.queue, j.task
