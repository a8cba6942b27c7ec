-- The holder obeys a pause: its checkpoint is saved already, the attempt is not charged.
update @jobs
   set state = case when cancel_requested then 'cancelled' else 'paused' end,
       finished_at = case when cancel_requested then @clock end,
       pause_requested = false, cancel_requested = false,
       fence = null, attempt = attempt - 1,
       error_code = case when cancel_requested then 'CANCELLED' else error_code end,
       error_message = case when cancel_requested then 'cancelled on request' else error_message end
 where id = :id and state = 'running' and fence = :fence
returning id, life, attempt + 1 as number, worker, started_at, state, queue, awaited
