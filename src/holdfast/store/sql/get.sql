select id, queue, task, state, priority, attempt, max_attempts, life, crashes, suspicion, pause_requested,
       cancel_requested, created_at, run_at, started_at, finished_at, failed_at, expires_at, fence, worker, key,
       holds_key, correlation_id, tags, args, result, checkpoint, pending, done, total, note, error_code,
       error_message, asked_at, asked_by, asked_why, progressed_at, rate
  from @jobs
 where id = :id
