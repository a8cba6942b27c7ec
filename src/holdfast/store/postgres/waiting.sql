-- What waits, by queue and task: when the first of it is due, and how many, counted up to :most. The lanes are the
-- claim's own, before anything is left out; at most :lanes of them are told.
with recursive
@lanes,
kind as materialized (
    select queue, task, min(ready_at) as due_at from lane group by queue, task order by queue, task limit :lanes
)
select kind.queue, kind.task, kind.due_at,
       (select count(*) from (
            select 1 from @jobs j
             where j.ready_at is not null and j.queue = kind.queue and j.task = kind.task
             order by j.queue, j.task, j.priority, j.ready_at, j.id limit :most) counted) as jobs
  from kind
 order by kind.queue, kind.task
