-- The first due jobs of one lane.
select priority, ready_at, id
  from @jobs indexed by @jobs_ready
 where ready_at is not null and queue = :queue and task = :task and priority = :priority and ready_at <= @now
   and (expires_at is null or attempt > 0 or expires_at > @now)
 order by ready_at, id
 limit :n
