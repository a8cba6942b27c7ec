-- What a claim answers: the jobs it took, in order. (One row more follows.)
(select id, task, queue, args, attempt, max_attempts, priority, checkpoint, correlation_id,
        suspicion, expires_in, null::float8 as next_due, false as more, false as passed, null::bigint as filter_version
   from taken order by priority desc, run_at, id)
