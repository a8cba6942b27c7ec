-- The lanes this worker may take from: each (queue, task, priority) that has ready jobs, with its first due time.
-- A loose index scan: one probe a lane, however many jobs stand in it. `walk` runs only when any queue will do.
paused as materialized (
    select kind, name, until, queues, tasks, arguments from @pauses where until is null or until > @now
),
walk (queue) as (
    (select queue from @jobs where ready_at is not null
      order by queue, task, priority, ready_at, id limit 1)
    union all
    select (select j.queue from @jobs j where j.ready_at is not null and j.queue > walk.queue
             order by j.queue, j.task, j.priority, j.ready_at, j.id limit 1)
      from walk where walk.queue is not null
),
served (queue) as (
    select distinct unnest(:queues::text[])
    union all
    select queue from walk where :queues::text[] is null and queue is not null
),
lane (queue, task, priority, ready_at) as (
    select served.queue, f.task, f.priority, f.ready_at
      from served cross join lateral
           (select j.task, j.priority, j.ready_at from @jobs j
             where j.ready_at is not null and j.queue = served.queue
             order by j.queue, j.task, j.priority, j.ready_at, j.id limit 1) f
    union all
    select lane.queue, n.task, n.priority, n.ready_at
      from lane cross join lateral
           (select j.task, j.priority, j.ready_at from @jobs j
             where j.ready_at is not null and j.queue = lane.queue
               and (j.task, j.priority) > (lane.task, lane.priority)
             order by j.queue, j.task, j.priority, j.ready_at, j.id limit 1) n
),
open_lane as materialized (
    select * from lane
     where task = any(:tasks)
       and not exists (select 1 from paused p
                        where (p.kind = 'queue' and p.name = lane.queue) or (p.kind = 'task' and p.name = lane.task))
),
-- Jobs that wait to be run alone. Read task by task in the order of their index, up to a bound: so it stays an index
-- scan whatever the statistics say. The bound counts only what this worker may take: no others stand in front of those.
suspect as materialized (
    select s.* from (select distinct unnest(:tasks::text[])) of (task) cross join lateral
           (select j.id, j.suspect_at, j.suspect_until, j.priority from @jobs j
             where j.suspect_at is not null and j.task = of.task
               and (:queues::text[] is null or j.queue = any(:queues::text[]))
               and not exists (select 1 from paused p where (p.kind = 'queue' and p.name = j.queue)
                                                         or (p.kind = 'task' and p.name = j.task))
             order by j.task, j.suspect_at limit 1000) s
)
