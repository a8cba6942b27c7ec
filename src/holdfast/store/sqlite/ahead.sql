-- How many due jobs of one lane are taken before this one, counted up to :most; and the smallest id among them. The lane is
-- read in its order, so that those before it come first: no more than :most are looked at.
select count(*) as jobs, min(id) as first
  from (select id, ready_at
          from @jobs indexed by @jobs_ready
         where ready_at is not null and queue = :queue and task = :task and priority = :lane and ready_at <= @now
           and (expires_at is null or attempt > 0 or expires_at > @now)
         order by ready_at, id
         limit :most)
 where :lane > :priority or (ready_at, id) < (:due_at, :id)
