-- What people do with jobs. Jobs in other states stay as they are.

-- name: cancel
-- End a job that does not run; ask a running one to stop. A failed job is dismissed and keeps its error. Who asked first,
-- and why, is kept.
update @jobs
   set state = case when state = 'running' then state else 'cancelled' end,
       cancel_requested = (state = 'running'),
       asked_at = case when cancel_requested then asked_at else @clock end,
       asked_by = case when cancel_requested then coalesce(asked_by, :by) else :by end,
       asked_why = case when cancel_requested then coalesce(asked_why, :reason) else :reason end,
       finished_at = case when state = 'running' then null when state = 'failed' then finished_at else @clock end,
       error_code = case when state in ('queued', 'paused') then 'CANCELLED' else error_code end,
       error_message = case when state in ('queued', 'paused') then coalesce(:reason, 'cancelled on request')
                            else error_message end,
       error_fingerprint = case when state = 'running' then error_fingerprint end,
       ready_at = null, held_by = null, failed_at = null
 where id @any(ids) and state in ('queued', 'paused', 'failed', 'running')
returning id, state, queue, awaited

-- name: change
-- Change queue, priority, due time or tags of a job that waits. A held one that moves to another queue is let go: if a
-- pause by filter means it there, a desk gives it back as held before it starts, as it does with any job that comes.
update @jobs
   set queue = coalesce(:queue, queue),
       priority = coalesce(:priority, priority),
       run_at = coalesce(@after(delay), :run_at, run_at),
       ready_at = case when ready_at is not null or (held_by is not null and queue <> coalesce(:queue, queue))
                       then coalesce(@after(delay), :run_at, run_at) end,
       held_by = case when queue = coalesce(:queue, queue) then held_by end,
       tags = coalesce(:tags, tags)
 where id @any(ids) and state in ('queued', 'paused')
returning id, state, queue

-- name: delete
-- Delete jobs: never running ones, and unfinished ones only if asked to. Not a job whose row in an adopted table says, or
-- is still to be told, something unfinished: it would come back.
delete from @jobs
 where id @any(ids) and ((state in ('succeeded', 'failed', 'cancelled') and not owed)
                         or (:unfinished and state <> 'running' and source is null))
returning id, state, queue
