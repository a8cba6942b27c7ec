-- Dedup keys.

-- name: key_given_up
-- A finished job gives up its key to a new one: at once if it failed or was cancelled (unless that is to be retried or
-- returned), otherwise when its result is too old to be reused. An enqueuer has no right to update jobs, so a function
-- does it (migrations/0001_jobs.sql); it is called only if there is such a job.
select @give_up_keys(array[task], array[key], array[@after(minus_reuse)], array[:failed::boolean]) from @jobs
 where task = :task and key = :key and holds_key
   and ((state in ('failed', 'cancelled') and :failed::boolean)
        or (state = 'succeeded' and finished_at <= @after(minus_reuse)))

-- name: give_up_keys
-- As key_given_up, for many. Of equal jobs, the first that does not just want the failed job returned decides about it.
select @give_up_keys(array_agg(a.task), array_agg(a.key), array_agg(@clock - make_interval(secs => a.reuse)),
                     array_agg(a.failed))
  from (select task, key, min(reuse) as reuse,
               coalesce((array_agg(after_failure order by n) filter (where after_failure <> 'return'))[1] = 'new',
                        false) as failed
          from json_to_recordset(:jobs::json) as r (task text, key text, reuse float8, after_failure text, n integer)
         group by task, key) a
  join @jobs j on j.task = a.task and j.key = a.key and j.holds_key
 where (j.state in ('failed', 'cancelled') and a.failed)
    or (j.state = 'succeeded' and j.finished_at <= @clock - make_interval(secs => a.reuse))
having count(*) > 0

-- name: retry_key
-- The failed job that has this key begins another life, by a function as in key_given_up: due when this enqueue says, and
-- no less urgent. No row back: it has not failed.
select id from @retry_keys(array[:task::text], array[:key::text], array[coalesce(:run_at, @after(delay))],
                           array[:priority::smallint])

-- name: retry_keys
-- As retry_key, for many.
select retried.task, retried.key, retried.id
  from (select array_agg(task) as tasks, array_agg(key) as keys, array_agg(due) as due,
               array_agg(priority) as priorities
          from (select distinct on (task, key) task, key, priority,
                       coalesce(run_at, @clock + make_interval(secs => delay)) as due
                  from json_to_recordset(:jobs::json)
                       as r (task text, key text, priority smallint, run_at timestamptz, delay float8,
                             after_failure text, n integer)
                 where after_failure = 'retry'
                 order by task, key, n) first
        having count(*) > 0) asked,
       @retry_keys(asked.tasks, asked.keys, asked.due, asked.priorities) retried

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
