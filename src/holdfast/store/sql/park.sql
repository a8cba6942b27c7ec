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
