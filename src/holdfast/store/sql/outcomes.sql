-- How an attempt ends, and how far it has come. Every statement carries the fence; no row back means the lease was lost.

-- name: fail
-- The job has failed for good. A cancel that was requested meanwhile wins.
update @jobs
   set state = case when cancel_requested then 'cancelled' else 'failed' end,
       failed_at = case when cancel_requested then null else @clock end,
       finished_at = @clock,
       error_fingerprint = case when not cancel_requested then :error_fingerprint end,
       pause_requested = false, cancel_requested = false,
       error_code = :error_code, error_message = :error_message
 where id = :id and state = 'running' and fence = :fence
returning id, life, attempt as number, worker, started_at, state, queue, awaited, error_code, error_message

-- name: reschedule
-- Try again later; the attempt counts. Goes to paused or cancelled if that was requested meanwhile.
update @jobs
   set state = case when cancel_requested then 'cancelled' when pause_requested then 'paused' else 'queued' end,
       run_at = @after(delay),
       ready_at = case when not cancel_requested and not pause_requested then @after(delay) end,
       finished_at = case when cancel_requested then @clock end,
       error_fingerprint = case when not cancel_requested then :error_fingerprint end,
       pause_requested = false, cancel_requested = false,
       fence = null, crashes = 0, suspicion = 0,
       error_code = :error_code, error_message = :error_message
 where id = :id and state = 'running' and fence = :fence
returning id, life, attempt as number, worker, started_at, state, queue, awaited, error_code, error_message

-- name: park
-- The holder obeys a pause: its checkpoint is already saved, the attempt does not count. If the request was withdrawn
-- meanwhile, the job is queued again. A job that has begun no longer expires.
update @jobs
   set state = case when cancel_requested then 'cancelled' when pause_requested then 'paused' else 'queued' end,
       ready_at = case when not cancel_requested and not pause_requested then run_at end,
       finished_at = case when cancel_requested then @clock end,
       error_fingerprint = case when not cancel_requested then error_fingerprint end,
       pause_requested = false, cancel_requested = false,
       expires_at = null, fence = null, attempt = attempt - 1,
       error_code = case when cancel_requested then 'CANCELLED' else error_code end,
       error_message = case when cancel_requested then coalesce(asked_why, 'cancelled on request') else error_message end
 where id = :id and state = 'running' and fence = :fence
returning id, life, attempt + 1 as number, worker, started_at, state, queue, awaited,
          cast(null as text) as error_code, cast(null as text) as error_message

-- name: stop
-- The holder obeys a cancel, or cancels the job itself. Without a reason of its own, the reason of whoever asked is kept.
update @jobs
   set state = 'cancelled', finished_at = @clock,
       error_fingerprint = null,
       pause_requested = false, cancel_requested = false,
       error_code = coalesce(:error_code, 'CANCELLED'),
       error_message = coalesce(:error_message, asked_why, 'cancelled on request')
 where id = :id and state = 'running' and fence = :fence
returning id, life, attempt as number, worker, started_at, state, queue, awaited, error_code, error_message

-- name: succeed_on
-- Finish a job we still hold, on the handler's own transaction.
update @jobs set state = 'succeeded', finished_at = @clock, error_code = null, error_message = null,
       error_fingerprint = null, result = :result,
       done = coalesce(cast(:done as bigint), done), total = coalesce(cast(:total as bigint), total),
       note = coalesce(cast(:note as text), note),
       progressed_at = case when coalesce(cast(:done as text), cast(:total as text), cast(:note as text)) is null then progressed_at else @clock end
 where id = :id and state = 'running' and fence = :fence
returning id

-- name: progress
-- How far the work has come. Returns what people have asked for meanwhile.
update @jobs
   set done = coalesce(:done, done), total = coalesce(:total, total), note = coalesce(:note, note), rate = :rate, progressed_at = @clock
 where id = :id and state = 'running' and fence = :fence
returning cancel_requested, pause_requested
