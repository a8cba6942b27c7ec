-- Jobs set aside by these pauses, which are over: they wait in their old places again.
update @jobs
   set barred_by = null,
       ready_at = case when suspect_until is null then run_at end,
       suspect_at = case when suspect_until is not null then run_at end,
       suspect_until = nullif(suspect_until, '9999-12-31 00:00:00+00')
 where id @any(ids) and barred_by is not null
returning id, queue, state
