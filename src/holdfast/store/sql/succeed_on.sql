-- Finish a job we still hold, on the handler's own transaction. No row back: the lease was lost.
update @jobs set state = 'succeeded', finished_at = @clock, result = :result
 where id = :id and state = 'running' and fence = :fence
returning id
