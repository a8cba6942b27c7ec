-- Dead, no more attempts. A cancel that was asked for meanwhile wins. No row back: the lease was lost.
update @jobs
   set state = case when cancel_requested then 'cancelled' else 'failed' end,
       failed_at = case when cancel_requested then null else @clock end,
       finished_at = @clock,
       pause_requested = false, cancel_requested = false,
       error_code = :error_code, error_message = :error_message
 where id = :id and state = 'running' and fence = :fence
returning id, life, attempt as number, worker, started_at, state, queue, awaited, error_code, error_message
