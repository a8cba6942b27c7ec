-- How far the work is. No row back: the lease was lost.
update @jobs
   set done = :done, total = coalesce(:total, total), note = coalesce(:note, note)
 where id = :id and state = 'running' and fence = :fence
returning cancel_requested, pause_requested
