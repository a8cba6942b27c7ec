-- The jobs of a queue by what they may wait for, each kind with a job of it. A bounded window: of those in the claim's
-- index and of what pauses set aside the first :most each; of those that are paused or run, what is found
-- among the newest :most jobs.
with found as (
    select * from (
        select id, queue, task, args, state, attempt, ready_at as due_at, suspicion, expires_at,
               cancel_requested, pause_requested, fence, barred_by
          from @jobs
         where ready_at is not null and queue = :queue
         order by queue, task, priority, ready_at, id limit :most) waiting
    union all
    select id, queue, task, args, state, attempt, run_at as due_at, suspicion, expires_at,
           cancel_requested, pause_requested, fence, barred_by
      from (select * from @jobs where barred_by is not null order by barred_by, id limit :most) aside
     where queue = :queue
    union all
    select id, queue, task, args, state, attempt, run_at as due_at, suspicion, expires_at,
           cancel_requested, pause_requested, fence, barred_by
      from (select * from @jobs order by id desc limit :most) newest
     where queue = :queue and state in ('paused', 'running')
),
known as (
    select j.*, (select min(s.name) from @pauses s
                  where s.kind = 'filter' and (s.until is null or s.until > @now) and @meant) as pause
      from found j
)
select f.task, f.state, count(*) as jobs, min(f.id) as example
  from known f left join @leases l on l.fence = f.fence and f.state = 'running'
 group by f.task, f.state, f.due_at > @now, f.attempt > 0,
          f.suspicion, coalesce(f.expires_at <= @now, false), f.cancel_requested, f.pause_requested, f.barred_by, f.pause,
          coalesce(l.expires_at < @now, true)
 order by count(*) desc, f.task
