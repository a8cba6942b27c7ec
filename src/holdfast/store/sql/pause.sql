-- Hold a queued job; of a running one, ask it. Who asked first, and why, is kept; a cancel is stronger.
update @jobs
   set state = case when state = 'queued' then 'paused' else state end,
       pause_requested = (state = 'running'),
       asked_at = case when pause_requested or cancel_requested then asked_at else @clock end,
       asked_by = case when cancel_requested then asked_by
                       when pause_requested then coalesce(asked_by, :by) else :by end,
       asked_why = case when cancel_requested then asked_why
                        when pause_requested then coalesce(asked_why, :reason) else :reason end,
       ready_at = null, held_by = null
 where id @any(ids) and state in ('queued', 'running')
returning id, state, queue
