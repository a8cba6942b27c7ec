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
