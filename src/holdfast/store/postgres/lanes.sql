-- The lanes, each (queue, task, priority) that has ready jobs, with its first one; and those this worker may take from. A
-- loose index scan: one probe a lane, however many jobs stand in it. Each lane is read from its head once, and from its
-- first job on after that: before it stand the entries of all jobs that were claimed since the last vacuum
-- (docs/decisions/0018).
paused as materialized (
    select kind, name, until from @pauses p where @stands(p)
    union all
    select 'task', name, case when not suspended then busy_until end from @sources where suspended or busy_until > @now
),
lane (queue, task, priority, ready_at, id) as (
    select f.* from (select distinct unnest(:queues::text[])) served (queue) cross join lateral
           (select j.queue, j.task, j.priority, j.ready_at, j.id from @jobs j
             where j.ready_at is not null and j.queue = served.queue
             @in_order(j) limit 1) f
    union all
    select * from (select j.queue, j.task, j.priority, j.ready_at, j.id from @jobs j
                    where j.ready_at is not null and :queues::text[] is null
                    @in_order(j) limit 1) first
    union all
    select n.* from lane cross join lateral (
           (select j.queue, j.task, j.priority, j.ready_at, j.id from @jobs j
             where j.ready_at is not null and :queues::text[] is not null and j.queue = lane.queue
               and (j.task, j.priority) > (lane.task, lane.priority)
             @in_order(j) limit 1)
           union all
           (select j.queue, j.task, j.priority, j.ready_at, j.id from @jobs j
             where j.ready_at is not null and :queues::text[] is null
               and (j.queue, j.task, j.priority) > (lane.queue, lane.task, lane.priority)
             @in_order(j) limit 1)) n
),
open_lane as materialized (
    select * from lane
     where task = any(:tasks)
       and not exists (select 1 from paused p
                        where (p.kind = 'queue' and p.name = lane.queue) or (p.kind = 'task' and p.name = lane.task))
)
