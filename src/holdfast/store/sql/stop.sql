-- The holder obeys a cancel, or asks for one itself.
update @jobs
   set state = 'cancelled', finished_at = @clock,
       pause_requested = false, cancel_requested = false,
       error_code = :error_code, error_message = :error_message
 where id = :id and state = 'running' and fence = :fence
returning id, life, attempt as number, worker, started_at, state, queue, awaited
