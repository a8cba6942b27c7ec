-- What waits, by queue and task: when the first of it is due, and how many, counted up to :most. As lanes.sql, before
-- anything is left out; at most :lanes are told.
with recursive
head (id) as (
    select (select id from @jobs indexed by @jobs_ready
             where ready_at is not null order by queue, task, priority, ready_at, id limit 1)
    union all
    select coalesce(
               (select n.id from @jobs n indexed by @jobs_ready
                 where n.ready_at is not null and n.queue = j.queue and n.task = j.task and n.priority > j.priority
                 order by n.priority, n.ready_at, n.id limit 1),
               (select n.id from @jobs n indexed by @jobs_ready
                 where n.ready_at is not null and n.queue = j.queue and n.task > j.task
                 order by n.task, n.priority, n.ready_at, n.id limit 1),
               (select n.id from @jobs n indexed by @jobs_ready
                 where n.ready_at is not null and n.queue > j.queue
                 order by n.queue, n.task, n.priority, n.ready_at, n.id limit 1))
      from head join @jobs j on j.id = head.id
),
kind as (
    select j.queue, j.task, min(j.ready_at) as due_at
      from head join @jobs j on j.id = head.id
     group by j.queue, j.task order by j.queue, j.task limit :lanes
)
select kind.queue, kind.task, kind.due_at,
       (select count(*) from (
            select 1 from @jobs j indexed by @jobs_ready
             where j.ready_at is not null and j.queue = kind.queue and j.task = kind.task limit :most)) as jobs
  from kind
