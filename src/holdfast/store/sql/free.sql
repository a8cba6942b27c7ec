-- Jobs set aside by these pauses, which are over: they wait in their old places again.
update @jobs
   set barred_by = null,
       ready_at = run_at
 where id @any(ids) and barred_by is not null
returning id, queue, state
