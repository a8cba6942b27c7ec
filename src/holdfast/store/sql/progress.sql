-- How far the work is. No row back: the lease was lost.
update @jobs
   set done = :done, total = coalesce(:total, total), note = coalesce(:note, note), rate = :rate, progressed_at = @clock
 where id = :id and state = 'running' and fence = :fence
returning cancel_requested, pause_requested
