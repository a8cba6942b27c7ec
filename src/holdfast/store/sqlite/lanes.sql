-- The lanes this worker may take from: each (queue, task, priority) that has ready jobs, with its first due time.
-- A loose index scan: two probes a lane, however many jobs stand in it. (One, with (task, priority) > (…), would read
-- through the lane: SQLite seeks by the first of both only.) `walk` runs only when any queue will do.
with recursive
walk (queue) as (
    select (select queue from @jobs indexed by @jobs_ready where ready_at is not null order by queue limit 1)
     where :queues is null
    union all
    select (select j.queue from @jobs j indexed by @jobs_ready
             where j.ready_at is not null and j.queue > walk.queue order by j.queue limit 1)
      from walk where walk.queue is not null
),
served (queue) as (
    select distinct value from json_each(:queues)
    union all
    select queue from walk where queue is not null
),
head (id) as (
    select (select j.id from @jobs j indexed by @jobs_ready
             where j.ready_at is not null and j.queue = served.queue
             order by j.task, j.priority, j.ready_at, j.id limit 1)
      from served
    union all
    select coalesce(
               (select n.id from @jobs n indexed by @jobs_ready
                 where n.ready_at is not null and n.queue = j.queue and n.task = j.task and n.priority > j.priority
                 order by n.priority, n.ready_at, n.id limit 1),
               (select n.id from @jobs n indexed by @jobs_ready
                 where n.ready_at is not null and n.queue = j.queue and n.task > j.task
                 order by n.task, n.priority, n.ready_at, n.id limit 1))
      from head join @jobs j on j.id = head.id
)
-- (`limit -1` keeps SQLite, once it has analysed the table, from making a filter of all of it for this join.)
select lane.queue, lane.task, lane.priority, lane.ready_at
  from (select j.queue, j.task, j.priority, j.ready_at from head join @jobs j on j.id = head.id limit -1) lane
 where lane.task in (select value from json_each(:tasks))
   and not exists (select 1 from @pauses p
                    where @stands(p)
                      and ((p.kind = 'queue' and p.name = lane.queue) or (p.kind = 'task' and p.name = lane.task)))
