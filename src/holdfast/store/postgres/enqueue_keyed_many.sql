-- As enqueue_keyed, for many, in order of their keys; of equal ones the first to come (n) is kept.
insert into @jobs (queue, task, args, priority, max_attempts, run_at, ready_at, expires_at,
                   correlation_id, tags, key, holds_key)
select queue, task, args::json, priority, max_attempts,
       coalesce(run_at, @clock + make_interval(secs => delay)), coalesce(run_at, @clock + make_interval(secs => delay)),
       @clock + make_interval(secs => expires_in), correlation_id, tags, key, true
  from json_to_recordset(:jobs::json) as r (queue text, task text, args text, priority smallint, max_attempts integer,
       run_at timestamptz, delay float8, expires_in float8, correlation_id text, tags text[], key text, n integer)
 order by task, key, n
on conflict (task, key) where holds_key do nothing
returning task, key, id
