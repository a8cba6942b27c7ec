-- The running jobs of a lease.
select id, queue, task, priority, correlation_id, attempt, max_attempts, life, crashes, suspicion, started_at, cancel_requested, pause_requested,
       awaited
  from @jobs
 where id in (select value from json_each(:ids)) and state = 'running' and fence = :fence
 order by id
