-- Forget jobs and their history. Not while they run; unfinished ones only if asked for.
delete from @jobs
 where id @any(ids) and (state in ('succeeded', 'failed', 'cancelled') or (:unfinished and state <> 'running'))
returning id, state, queue
