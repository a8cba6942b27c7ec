-- How a claim ends: what was `chosen` is taken, under one lease.
taken as (
    update @jobs j
       set state = 'running', fence = :fence::uuid, worker = :worker, started_at = @clock,
           attempt = j.attempt + 1, ready_at = null
     where j.id = any(array(select id from chosen)) and j.state = 'queued'
    returning j.id, j.task, j.queue, j.args, j.attempt, j.max_attempts, j.priority, j.checkpoint,
              j.correlation_id, j.suspicion, j.run_at,
              -- What has begun once expires no more.
              case when j.attempt = 1 then extract(epoch from j.expires_at - @now)::float8 end as expires_in
),
lease as (
    insert into @leases (fence, worker, expires_at, held, job_ids)
    select :fence::uuid, :worker, @after(lease), :held + count(*), array_agg(id order by id)
      from taken having count(*) > 0
)
