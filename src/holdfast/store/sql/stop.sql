-- The holder obeys a cancel, or asks for one itself. Where it has no words of its own, those of whoever asked stand.
update @jobs
   set state = 'cancelled', finished_at = @clock,
       pause_requested = false, cancel_requested = false,
       error_code = coalesce(:error_code, 'CANCELLED'),
       error_message = coalesce(:error_message, asked_why, 'cancelled on request')
 where id = :id and state = 'running' and fence = :fence
returning id, life, attempt as number, worker, started_at, state, queue, awaited, error_code, error_message
