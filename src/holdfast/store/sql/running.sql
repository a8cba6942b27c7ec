-- Of the jobs that leases name, those that run, the longest running first.
select id, queue, task, fence, worker, attempt, max_attempts, started_at, done, total, note, pause_requested,
       cancel_requested
  from @jobs
 where id @any(ids) and state = 'running'
 order by started_at, id
 limit :most
