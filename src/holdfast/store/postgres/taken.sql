-- How a claim ends: what was `chosen` is taken, under one lease, and its rows are the answer. (One row more follows.)
taken as (
    update @jobs j
       set state = 'running', fence = :fence::uuid, worker = :worker, started_at = @clock,
           attempt = j.attempt + 1, ready_at = null, suspect_at = null, suspect_until = null
     where j.id = any(array(select id from chosen)) and j.state = 'queued'
    returning j.id, j.task, j.queue, j.args, j.attempt, j.max_attempts, j.priority, j.checkpoint,
              j.correlation_id, j.run_at
),
lease as (
    insert into @leases (fence, worker, expires_at, held, job_ids)
    select :fence::uuid, :worker, @after(lease), :held + count(*), array_agg(id order by id)
      from taken having count(*) > 0
)
(select id, task, queue, args, attempt, max_attempts, priority, checkpoint, correlation_id,
        null::float8 as next_due, false as more, false as passed, false as alone, false as hold_back
   from taken order by priority desc, run_at, id)
