-- Newest first, one page, from before an id. The window is bounded by the page, never by a count.
select id, queue, task, state, priority, attempt, max_attempts, life, crashes, suspicion, pause_requested,
       cancel_requested, created_at, run_at, started_at, finished_at, failed_at, expires_at, fence, worker, key,
       holds_key, correlation_id, tags, args, result, checkpoint, pending, done, total, note, error_code,
       error_message
  from @jobs
 where id < :before
   and (cast(:state as text) is null or state = :state)
   and (cast(:queue as text) is null or queue = :queue)
   and (cast(:task as text) is null or task = :task)
 order by id desc
 limit :limit
