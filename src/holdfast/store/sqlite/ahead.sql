-- How many due jobs of one lane are taken before this one, counted up to :most; and the smallest id among them.
select count(*) as jobs, min(id) as first
  from (select id
          from @jobs indexed by @jobs_ready
         where ready_at is not null and queue = :queue and task = :task and priority = :lane and ready_at <= @now
           and (expires_at is null or attempt > 0 or expires_at > @now)
           and (priority > :priority or (ready_at, id) < (:due_at, :id))
         limit :most)
