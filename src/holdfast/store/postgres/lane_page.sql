-- The next jobs of a lane, after the one named. Read in the order of the index.
select j.id, j.ready_at, j.queue, j.task, j.args
  from (select id, ready_at, queue, task, args from @jobs
         where ready_at is not null and queue = :queue and task = :task and priority = :priority
           and (ready_at, id) > (:after_at::timestamptz, :after_id::bigint)
         order by queue, task, priority, ready_at, id
         limit :limit) j
 order by j.ready_at, j.id
