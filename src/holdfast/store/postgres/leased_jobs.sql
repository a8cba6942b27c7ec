-- The running jobs of a lease. One that is locked is just being finished: it is left for the next look.
select id, queue, task, priority, correlation_id, attempt, max_attempts, life, crashes, suspicion, started_at, cancel_requested, pause_requested,
       awaited
  from @jobs
 where id = any(:ids) and state = 'running' and fence = :fence::uuid
 order by id for update skip locked
