-- Change priority, due time or tags of a job that waits.
update @jobs
   set priority = coalesce(:priority, priority),
       run_at = coalesce(@after(delay), :run_at, run_at),
       ready_at = case when ready_at is not null then coalesce(@after(delay), :run_at, run_at) end,
       tags = coalesce(:tags, tags)
 where id @any(ids) and state = 'queued'
returning id, state, queue
