-- How much work is pending, by queue and task: in jobs that run, and in all that are unfinished. Looks at the jobs
-- on the list, by their ids, and at no others.
select queue, task, coalesce(sum(pending) filter (where state = 'running'), 0)::bigint as running,
       sum(pending)::bigint as unfinished
  from @jobs
 where id = any(array(select job_id from @pending)) and state in ('queued', 'running', 'paused') and pending > 0
 group by queue, task
