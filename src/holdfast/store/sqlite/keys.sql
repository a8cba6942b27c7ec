-- Dedup keys.

-- name: key_given_up
-- A finished job gives up its key to a new one: at once if it failed or was cancelled (unless that is to be retried or
-- returned), otherwise when its result is too old to be reused.
update @jobs set holds_key = null
 where task = :task and key = :key and holds_key
   and ((state in ('failed', 'cancelled') and :failed)
        or (state = 'succeeded' and finished_at <= @after(minus_reuse)))

-- name: raise_priority
-- An enqueue joins a job that waits under the same key and asks for a higher priority: the job gets it.
update @jobs set priority = :priority
 where id = :id and state in ('queued', 'paused') and priority < :priority
returning id

-- name: due_again
-- An enqueue has retried the failed job that has its key: it is due when that enqueue says, and no less urgent.
update @jobs
   set run_at = coalesce(:run_at, @after(delay)), ready_at = coalesce(:run_at, @after(delay)),
       priority = max(priority, :priority)
 where id @any(ids) and state = 'queued'

-- name: retake_keys
-- Jobs that are to be retried take their keys back if nobody has them; of equal ones, the newest.
update @jobs as j set holds_key = true
 where j.id in (select max(w.id) from @jobs w
               where w.id @any(ids) and w.state in ('failed', 'cancelled') and w.key is not null and w.holds_key is null
               group by w.task, w.key)
   and j.state in ('failed', 'cancelled')
   and not exists (select 1 from @jobs held where held.task = j.task and held.key = j.key and held.holds_key)
