-- As enqueue, for many, in their order (n): for whom COPY is not to be had.
insert into @jobs (queue, task, args, priority, max_attempts, run_at, ready_at, expires_at, correlation_id, tags)
select queue, task, args::json, priority, max_attempts,
       coalesce(run_at, @clock + make_interval(secs => delay)), coalesce(run_at, @clock + make_interval(secs => delay)),
       @clock + make_interval(secs => expires_in), correlation_id, tags
  from json_to_recordset(:jobs::json) as r (queue text, task text, args text, priority smallint, max_attempts integer,
       run_at timestamptz, delay float8, expires_in float8, correlation_id text, tags text[], n integer)
 order by n
returning id
