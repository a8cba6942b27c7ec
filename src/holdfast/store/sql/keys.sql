-- Dedup keys.

-- name: key_held
select id, state, queue, priority from @jobs where task = :task and key = :key and holds_key

-- name: yield_keys
-- Finished jobs give up their keys to the jobs that are to be retried.
update @jobs set holds_key = null
 where holds_key and state in ('succeeded', 'failed', 'cancelled')
   and (task, key) in (select j.task, j.key from @jobs j
                        where j.id @any(ids) and j.state in ('failed', 'cancelled') and j.key is not null
                          and j.holds_key is null)
