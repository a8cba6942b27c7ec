-- When the next job of these lanes falls due that is not due yet.
with lane (queue, task, priority) as materialized (
    select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') from json_each(:lanes)
)
select min((select j.ready_at
              from @jobs j indexed by @jobs_ready
             where j.ready_at is not null and j.queue = lane.queue and j.task = lane.task
               and j.priority = lane.priority and j.ready_at > @now
             order by j.ready_at
             limit 1))
  from lane
