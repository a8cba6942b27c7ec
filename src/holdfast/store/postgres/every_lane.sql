-- Every lane, whoever serves it: each (queue, task, priority) that has ready jobs, with its first due time, and how many
-- are due and how many lie ahead, each counted up to :most. A loose index scan: one probe a lane, however many jobs stand
-- in it. Counted in the order of the index: so it is read, whatever the statistics say.
with recursive lane (queue, task, priority, ready_at) as (
    (select queue, task, priority, ready_at from @jobs where ready_at is not null
      order by queue, task, priority, ready_at, id limit 1)
    union all
    select n.queue, n.task, n.priority, n.ready_at
      from lane cross join lateral
           (select j.queue, j.task, j.priority, j.ready_at from @jobs j
             where j.ready_at is not null and (j.queue, j.task, j.priority) > (lane.queue, lane.task, lane.priority)
             order by j.queue, j.task, j.priority, j.ready_at, j.id limit 1) n
)
select queue, task, ready_at,
       (select count(*) from (select 1 from @jobs j
                               where j.ready_at is not null and j.queue = lane.queue and j.task = lane.task
                                 and j.priority = lane.priority and j.ready_at <= @now
                               order by j.queue, j.task, j.priority, j.ready_at limit :most) d) as due,
       (select count(*) from (select 1 from @jobs j
                               where j.ready_at is not null and j.queue = lane.queue and j.task = lane.task
                                 and j.priority = lane.priority and j.ready_at > @now
                               order by j.queue, j.task, j.priority, j.ready_at limit :most) s) as scheduled
  from lane limit :lanes
