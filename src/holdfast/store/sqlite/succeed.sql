-- Finish a job we still hold. No row changed: the lease was lost.
update @jobs
   set state = 'succeeded', finished_at = @clock, result = :result
 where id = :id and state = 'running' and fence = :fence
