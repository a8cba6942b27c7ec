-- Hold a queued job; of a running one, ask it (R2.2).
update @jobs
   set state = case when state = 'queued' then 'paused' else state end,
       pause_requested = (state = 'running'),
       ready_at = null, suspect_at = null, barred_by = null
 where id @any(ids) and state in ('queued', 'running')
returning id, state, queue
