-- The next due jobs of some lanes, each from behind the job named with it, as one JSON document: what orders them, and
-- whether they may be claimed ahead of a free slot (never tried, and allowed to be tried again).
with lane (queue, task, priority, after_at, after_id) as materialized (
    select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
           json_extract(value, '$[3]'), json_extract(value, '$[4]')
      from json_each(:lanes)
)
select json_group_array(json((
           select json_group_array(json_array(-priority, ready_at, id, attempt = 0 and max_attempts > 1))
             from (select j.priority, j.ready_at, j.id, j.attempt, j.max_attempts
                     from @jobs j indexed by @jobs_ready
                    where j.ready_at is not null and j.queue = lane.queue and j.task = lane.task
                      and j.priority = lane.priority and j.ready_at <= @now
                      and (j.ready_at, j.id) > (lane.after_at, lane.after_id)
                      and (j.expires_at is null or j.attempt > 0 or j.expires_at > @now)
                    order by j.ready_at, j.id
                    limit :n))))
  from lane
