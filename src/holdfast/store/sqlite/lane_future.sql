-- When the next job of one lane falls due that is not due yet.
select ready_at
  from @jobs indexed by @jobs_ready
 where ready_at is not null and queue = :queue and task = :task and priority = :priority and ready_at > @now
 order by ready_at
 limit 1
