-- The lanes, each (queue, task, priority) that has ready jobs, with its first due time; and those this worker may take from.
-- A loose index scan: two probes a lane, however many jobs stand in it. (One, with (task, priority) > (…), would read
-- through the lane: SQLite seeks by the first of both only.) `walk` runs only when any queue will do.
walk (queue) as (
    select (select j.queue from @jobs j @by_ready where j.ready_at is not null @in_order(j) limit 1)
     where :queues is null
    union all
    select (select j.queue from @jobs j @by_ready
             where j.ready_at is not null and j.queue > walk.queue @in_order(j) limit 1)
      from walk where walk.queue is not null
),
served (queue) as (
    select distinct value from json_each(:queues)
    union all
    select queue from walk where queue is not null
),
head (id) as (
    select (select j.id from @jobs j @by_ready
             where j.ready_at is not null and j.queue = served.queue @in_order(j) limit 1)
      from served
    union all
    select coalesce(
               (select n.id from @jobs n @by_ready
                 where n.ready_at is not null and n.queue = j.queue and n.task = j.task and n.priority > j.priority
                 @in_order(n) limit 1),
               (select n.id from @jobs n @by_ready
                 where n.ready_at is not null and n.queue = j.queue and n.task > j.task
                 @in_order(n) limit 1))
      from head join @jobs j on j.id = head.id
),
-- (`limit -1` keeps SQLite, once it has analysed the table, from making a filter of all of it for this join.)
lane as (
    select j.queue, j.task, j.priority, j.ready_at from head join @jobs j on j.id = head.id limit -1
),
open_lane as (
    select queue, task, priority, ready_at from lane
     where lane.task in (select value from json_each(:tasks)) and not @paused(lane)
       and not exists (select 1 from @sources s where s.name = lane.task and (s.suspended or s.refused is not null))
)
