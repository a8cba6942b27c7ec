-- The jobs of a queue by what they may wait for, each kind with a job of it; by their arguments as well where pauses by
-- filter stand (:judged). A bounded window: of those in the claim's index and of those that are held the first :most each;
-- of those that are paused or run, what is found among the newest :most jobs.
with found as (
    select * from (
        select id, queue, task, args, state, attempt, ready_at as due_at, suspicion, expires_at,
               cancel_requested, pause_requested, fence, held_by
          from @jobs
         where ready_at is not null and queue = :queue
         order by queue, task, priority, ready_at, id limit :most) waiting
    union all
    select id, queue, task, args, state, attempt, run_at as due_at, suspicion, expires_at,
           cancel_requested, pause_requested, fence, held_by
      from (select * from @jobs where held_by is not null order by held_by, id limit :most) held
     where queue = :queue
    union all
    select id, queue, task, args, state, attempt, run_at as due_at, suspicion, expires_at,
           cancel_requested, pause_requested, fence, held_by
      from (select * from @jobs order by id desc limit :most) newest
     where queue = :queue and state in ('paused', 'running')
)
select f.task, f.state, f.due_at > @now as later, f.attempt > 0 as tried, f.suspicion,
       coalesce(f.expires_at <= @now, false) as expired, f.cancel_requested, f.pause_requested, f.held_by,
       coalesce(l.expires_at < @now, true) as lost, case when :judged then cast(f.args as text) end as args,
       count(*) as jobs, min(f.id) as example, @now as now
  from found f left join @leases l on l.fence = f.fence and f.state = 'running'
 group by 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
 order by count(*) desc, f.task
