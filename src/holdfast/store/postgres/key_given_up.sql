-- A finished job gives its key up to a new one: at once if it failed or was cancelled, else when its result is too old to be
-- handed out again. Who enqueues has no right to update jobs: a function does it (migrations/0001_jobs.sql), and is called
-- only where there is one.
select @give_up_keys(array[task], array[key], array[@after(minus_reuse)]) from @jobs
 where task = :task and key = :key and holds_key
   and (state in ('failed', 'cancelled')
        or (state = 'succeeded' and finished_at <= @after(minus_reuse)))
