-- The first due jobs of one lane, as one JSON document: what orders them, and whether they may be claimed ahead of a free
-- slot (never tried, and allowed to be tried again).
select json_group_array(json_array(-priority, ready_at, id, attempt = 0 and max_attempts > 1))
  from (select priority, ready_at, id, attempt, max_attempts
          from @jobs indexed by @jobs_ready
         where ready_at is not null and queue = :queue and task = :task and priority = :priority and ready_at <= @now
           and (expires_at is null or attempt > 0 or expires_at > @now)
         order by ready_at, id
         limit :n)
