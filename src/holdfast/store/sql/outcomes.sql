-- How an attempt ends, and how far it has come. Every statement carries the fence; no row back means the lease was lost.

-- name: fail
-- Dead, no more attempts. A cancel that was asked for meanwhile wins. No row back: the lease was lost.
update @jobs
   set state = case when cancel_requested then 'cancelled' else 'failed' end,
       failed_at = case when cancel_requested then null else @clock end,
       finished_at = @clock,
       pause_requested = false, cancel_requested = false,
       error_code = :error_code, error_message = :error_message
 where id = :id and state = 'running' and fence = :fence
returning id, life, attempt as number, worker, started_at, state, queue, awaited, error_code, error_message

-- name: reschedule
-- Again later; the attempt stays charged. To paused or cancelled if that was asked meanwhile.
update @jobs
   set state = case when cancel_requested then 'cancelled' when pause_requested then 'paused' else 'queued' end,
       run_at = @after(delay),
       ready_at = case when not cancel_requested and not pause_requested then @after(delay) end,
       finished_at = case when cancel_requested then @clock end,
       pause_requested = false, cancel_requested = false,
       fence = null, crashes = 0, suspicion = 0,
       error_code = :error_code, error_message = :error_message
 where id = :id and state = 'running' and fence = :fence
returning id, life, attempt as number, worker, started_at, state, queue, awaited, error_code, error_message

-- name: park
-- The holder obeys a pause: its checkpoint is saved already, the attempt is not charged. Where the request was taken back
-- meanwhile, the job waits to go on. What has begun expires no more.
update @jobs
   set state = case when cancel_requested then 'cancelled' when pause_requested then 'paused' else 'queued' end,
       ready_at = case when not cancel_requested and not pause_requested then run_at end,
       finished_at = case when cancel_requested then @clock end,
       pause_requested = false, cancel_requested = false,
       expires_at = null, fence = null, attempt = attempt - 1,
       error_code = case when cancel_requested then 'CANCELLED' else error_code end,
       error_message = case when cancel_requested then coalesce(asked_why, 'cancelled on request') else error_message end
 where id = :id and state = 'running' and fence = :fence
returning id, life, attempt + 1 as number, worker, started_at, state, queue, awaited,
          cast(null as text) as error_code, cast(null as text) as error_message

-- name: stop
-- The holder obeys a cancel, or asks for one itself. Where it has no words of its own, those of whoever asked stand.
update @jobs
   set state = 'cancelled', finished_at = @clock,
       pause_requested = false, cancel_requested = false,
       error_code = coalesce(:error_code, 'CANCELLED'),
       error_message = coalesce(:error_message, asked_why, 'cancelled on request')
 where id = :id and state = 'running' and fence = :fence
returning id, life, attempt as number, worker, started_at, state, queue, awaited, error_code, error_message

-- name: succeed_on
-- Finish a job we still hold, on the handler's own transaction. No row back: the lease was lost.
update @jobs set state = 'succeeded', finished_at = @clock, error_code = null, error_message = null, result = :result,
       done = coalesce(cast(:done as bigint), done), total = coalesce(cast(:total as bigint), total),
       note = coalesce(cast(:note as text), note),
       progressed_at = case when cast(:done as bigint) is null then progressed_at else @clock end
 where id = :id and state = 'running' and fence = :fence
returning id

-- name: progress
-- How far the work is. No row back: the lease was lost.
update @jobs
   set done = :done, total = coalesce(:total, total), note = coalesce(:note, note), rate = :rate, progressed_at = @clock
 where id = :id and state = 'running' and fence = :fence
returning cancel_requested, pause_requested
