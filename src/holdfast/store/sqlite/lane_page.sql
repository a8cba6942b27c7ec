-- The next jobs of a lane, from behind the one named, and whether a pause by filter means them. Read in the order of the
-- index.
select j.id, j.ready_at,
       exists (select 1 from @pauses s where s.kind = 'filter' and (s.until is null or s.until > @now) and @meant) as meant
  from (select id, ready_at, queue, task, args from @jobs indexed by @jobs_ready
         where ready_at is not null and queue = :queue and task = :task and priority = :priority
           and (ready_at, id) > (:after_at, :after_id)
         order by ready_at, id
         limit :limit) j
 order by j.ready_at, j.id
