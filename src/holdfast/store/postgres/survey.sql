-- Where claim_recent is to look: every lane of these tasks that has ready jobs, paused or not, with the due time of its
-- first job, but not later than now; the newest job; and how many lanes there are in these queues, whoever serves them.
-- A loose index scan, as in lanes.sql, but one alone: what dead entries there are, it reads once.
with recursive lane (queue, task, priority, ready_at) as (
    select f.* from (select distinct unnest(:queues::text[])) served (queue) cross join lateral
           (select j.queue, j.task, j.priority, j.ready_at from @jobs j
             where j.ready_at is not null and j.queue = served.queue
             order by j.queue, j.task, j.priority, j.ready_at, j.id limit 1) f
    union all
    select * from (select queue, task, priority, ready_at from @jobs
                    where ready_at is not null and :queues::text[] is null
                    order by queue, task, priority, ready_at, id limit 1) first
    union all
    select n.* from lane cross join lateral (
           (select j.queue, j.task, j.priority, j.ready_at from @jobs j
             where j.ready_at is not null and :queues::text[] is not null and j.queue = lane.queue
               and (j.task, j.priority) > (lane.task, lane.priority)
             order by j.queue, j.task, j.priority, j.ready_at, j.id limit 1)
           union all
           (select j.queue, j.task, j.priority, j.ready_at from @jobs j
             where j.ready_at is not null and :queues::text[] is null
               and (j.queue, j.task, j.priority) > (lane.queue, lane.task, lane.priority)
             order by j.queue, j.task, j.priority, j.ready_at, j.id limit 1)) n
)
select json_agg(json_build_array(queue, task, priority, extract(epoch from least(ready_at, @now))))
           filter (where task = any(:tasks)) as lanes,
       extract(epoch from @now)::float8 as at, coalesce((select max(id) from @jobs), 0) as newest, count(*) as met
  from lane
