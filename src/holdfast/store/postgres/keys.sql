-- Dedup keys.

-- name: key_given_up
-- A finished job gives up its key to a new one: at once if it failed or was cancelled, otherwise when its result is too
-- old to be reused. An enqueuer has no right to update jobs, so a function does it (migrations/0001_jobs.sql); it is
-- called only if there is such a job.
select @give_up_keys(array[task], array[key], array[@after(minus_reuse)]) from @jobs
 where task = :task and key = :key and holds_key
   and (state in ('failed', 'cancelled')
        or (state = 'succeeded' and finished_at <= @after(minus_reuse)))

-- name: give_up_keys
-- As key_given_up, for many.
select @give_up_keys(array_agg(a.task), array_agg(a.key), array_agg(@clock - make_interval(secs => a.reuse)))
  from (select distinct on (task, key) task, key, reuse
          from json_to_recordset(:jobs::json) as r (task text, key text, reuse float8)
         order by task, key, reuse) a
  join @jobs j on j.task = a.task and j.key = a.key and j.holds_key
 where j.state in ('failed', 'cancelled')
    or (j.state = 'succeeded' and j.finished_at <= @clock - make_interval(secs => a.reuse))
having count(*) > 0

-- name: keys_held
select j.task, j.key, j.id, j.state, j.queue, j.priority
  from json_to_recordset(:jobs::json) as r (task text, key text)
  join @jobs j on j.task = r.task and j.key = r.key and j.holds_key

-- name: key_taken
-- The job that has this key, and its age: to find out about an enqueue whose reply was lost.
select id, extract(epoch from @clock - created_at)::float8 as age from @jobs where task = :task and key = :key and holds_key

-- name: raise_priority
-- An enqueue joins a job that waits under the same key and asks for a higher priority: the job gets it, by a function as
-- in key_given_up.
select @raise_priorities(array[:task::text], array[:key::text], array[:priority::smallint])

-- name: raise_priorities
-- As raise_priority, for many.
select @raise_priorities(array_agg(task), array_agg(key), array_agg(priority))
  from (select task, key, max(priority) as priority
          from json_to_recordset(:jobs::json) as r (task text, key text, priority smallint)
         group by task, key) asked

-- name: retake_keys
-- Jobs that are to be retried take their keys back if nobody has them; of equal ones, the newest. They are locked in the
-- order of bulk enqueues, as by retry: whoever takes a key waits for another that is taking it.
with newest as (
    select max(id) as id from @jobs
     where id @any(ids) and state in ('failed', 'cancelled') and key is not null and holds_key is null
     group by task, key
),
picked as materialized (
    select j.id from newest n join @jobs j on j.id = n.id
     where j.state in ('failed', 'cancelled') and j.holds_key is null
       and not exists (select 1 from @jobs held where held.task = j.task and held.key = j.key and held.holds_key)
     order by j.task, j.key for update of j
)
update @jobs j set holds_key = true from picked
 where j.id = picked.id and j.state in ('failed', 'cancelled')
