-- Let a paused job go, or take back the request to pause a running one. Charges no attempt, keeps the checkpoint.
update @jobs
   set state = case when state = 'paused' then 'queued' else state end,
       ready_at = case when state = 'paused' then run_at end,
       pause_requested = false
 where id @any(ids) and (state = 'paused' or (state = 'running' and pause_requested))
returning id, state, queue
