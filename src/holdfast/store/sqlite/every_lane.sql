-- Every lane, whoever serves it: each (queue, task, priority) that has ready jobs, with its first due time, and how many
-- are due and how many lie ahead, each counted up to :most. A loose index scan: three probes a lane, as SQLite seeks by
-- the first of a row of columns only.
with recursive head (id) as (
    select (select id from @jobs indexed by @jobs_ready where ready_at is not null
             order by queue, task, priority, ready_at, id limit 1)
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
)
select j.queue, j.task, j.ready_at,
       (select count(*) from (select 1 from @jobs d indexed by @jobs_ready
                               where d.ready_at is not null and d.queue = j.queue and d.task = j.task
                                 and d.priority = j.priority and d.ready_at <= @now limit :most)) as due,
       (select count(*) from (select 1 from @jobs s indexed by @jobs_ready
                               where s.ready_at is not null and s.queue = j.queue and s.task = j.task
                                 and s.priority = j.priority and s.ready_at > @now limit :most)) as scheduled
  from head join @jobs j on j.id = head.id limit :lanes
