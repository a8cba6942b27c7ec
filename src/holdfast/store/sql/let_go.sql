-- What held these jobs has ended: they are ready again, in their old places.
update @jobs
   set held_by = null, ready_at = run_at
 where id @any(ids) and held_by = :held_by
returning id, queue
