-- Let a paused job go, or take back the request to pause a running one. Charges no attempt, keeps the checkpoint.
update @jobs
   set state = case when state = 'paused' then 'queued' else state end,
       ready_at = case when state = 'paused' then run_at end,
       pause_requested = false,
       asked_at = case when cancel_requested then asked_at end,
       asked_by = case when cancel_requested then asked_by end,
       asked_why = case when cancel_requested then asked_why end
 where id @any(ids) and (state = 'paused' or (state = 'running' and pause_requested))
returning id, state, queue
