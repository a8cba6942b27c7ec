-- New jobs.

-- name: enqueue
-- A new job.
insert into @jobs (queue, task, args, priority, max_attempts, run_at, ready_at, expires_at,
                   correlation_id, tags)
values (:queue, :task, :args, :priority, :max_attempts, coalesce(:run_at, @after(delay)),
        coalesce(:run_at, @after(delay)), @after(expires_in), :correlation_id, :tags)
returning id

-- name: enqueue_keyed
-- A new job with a key: the unique index decides which of several at once is the first. No row back: it is held.
insert into @jobs (queue, task, args, priority, max_attempts, run_at, ready_at, expires_at,
                   correlation_id, tags, key, holds_key)
values (:queue, :task, :args, :priority, :max_attempts, coalesce(:run_at, @after(delay)),
        coalesce(:run_at, @after(delay)), @after(expires_in), :correlation_id, :tags, :key, true)
on conflict (task, key) where holds_key do nothing
returning id

-- name: enqueue_many
-- As enqueue, for many, in their order (n): for whom COPY is not to be had.
insert into @jobs (queue, task, args, priority, max_attempts, run_at, ready_at, expires_at, correlation_id, tags)
select queue, task, args::json, priority, max_attempts,
       coalesce(run_at, @clock + make_interval(secs => delay)), coalesce(run_at, @clock + make_interval(secs => delay)),
       @clock + make_interval(secs => expires_in), correlation_id, tags
  from json_to_recordset(:jobs::json) as r (queue text, task text, args text, priority smallint, max_attempts integer,
       run_at timestamptz, delay float8, expires_in float8, correlation_id text, tags text[], n integer)
 order by n
returning id

-- name: enqueue_keyed_many
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

-- name: reserve_ids
-- Ids for jobs that COPY will bring: from the first to the last, unless others took some in between. They never repeat,
-- also if it fails. None where COPY is not to be had: this role may not say which ids jobs get, or policies concern it, which
-- COPY does not know.
select min(id) as first, max(id) as last,
       case when max(id) - min(id) >= count(*) then array_agg(id order by id) end as ids, @clock as now
  from (select nextval(:sequence::regclass) as id
          from generate_series(1, case when has_column_privilege(:jobs::regclass, 'id', 'insert')
                                        and has_sequence_privilege(:sequence::regclass, 'usage')
                                        and not row_security_active(:jobs::regclass) then :n else 0 end)) reserved
