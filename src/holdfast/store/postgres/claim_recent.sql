-- As claim, where looking everywhere takes long (docs/decisions/0013): from lanes that are known, each from a floor on, an
-- instant in seconds, and from those that jobs with an id above :newest stand in, from :since on. What is older than that
-- is for a survey to find.
--
-- The last row tells in place of a job's id the newest one seen, and in place of its args each lane that was looked at,
-- with the due time of the first job left in it, or now: its next floor. (One more than is wanted of a lane is always read,
-- so there is one left where not all were taken.) Null: it was not to be taken from.
with paused as materialized (
    select kind, name, until from @pauses p where @stands(p)
),
new as materialized (
    select id, queue, task, priority, ready_at from @jobs where id > :newest order by id limit 1000
),
known as materialized (
    select * from unnest(:lane_queues::text[], :lane_tasks::text[], :lane_priorities::smallint[], :lane_floors::float8[])
                  l (queue, task, priority, floor)
),
lane as materialized (
    select queue, task, priority, to_timestamp(floor) as floor, row_number() over () as n
      from (select * from known
            union all
            select distinct queue, task, priority, :since::float8 from new
             where ready_at is not null and task = any(:tasks)
               and (:queues::text[] is null or queue = any(:queues::text[]))
               and not exists (select 1 from known k where (k.queue, k.task, k.priority) = (new.queue, new.task, new.priority))
           ) l
),
open_lane as materialized (
    select * from lane
     where not exists (select 1 from paused p
                        where (p.kind = 'queue' and p.name = lane.queue) or (p.kind = 'task' and p.name = lane.task))
),
candidate as materialized (
    select c.id, c.ready_at, open_lane.priority, open_lane.n
      from open_lane cross join lateral
           (select j.id, j.ready_at from @jobs j
             where j.ready_at is not null and j.queue = open_lane.queue and j.task = open_lane.task
               and j.priority = open_lane.priority and j.ready_at >= open_lane.floor and j.ready_at <= @now
               and (j.expires_at is null or j.attempt > 0 or j.expires_at > @now)
             order by j.queue, j.task, j.priority, j.ready_at, j.id
             limit :reach) c
),
picked as materialized (
    select id, attempt = 0 and max_attempts > 1 as fresh, row_number() over () as rank
      from (select j.id, j.attempt, j.max_attempts from @jobs j
             where j.id = any(array(select id from candidate order by priority desc, ready_at, id limit :reach))
               and coalesce(j.ready_at, 'infinity') <= @now
             order by j.priority desc, j.ready_at, j.id
             limit :n for update of j skip locked) found
),
chosen as (
    select c.id from picked c where (c.rank <= :limit or c.fresh)
),
remaining as materialized (
    select n, min(ready_at) as first from candidate where id not in (select id from chosen) group by n
),
@taken
@answer
union all
select coalesce((select max(id) from new), :newest::bigint), null, null,
       (select json_agg(json_build_array(lane.queue, lane.task, lane.priority, case when open_lane.n is not null then
                   extract(epoch from coalesce(r.first, @now)) end))
          from lane left join open_lane on open_lane.n = lane.n left join remaining r on r.n = lane.n),
       null, null, null, null, null, null, null,
       (select extract(epoch from min(at) - @now)::float8 from (
            select min(f.ready_at) as at from open_lane cross join lateral
                   (select j.ready_at from @jobs j
                     where j.ready_at is not null and j.queue = open_lane.queue and j.task = open_lane.task
                       and j.priority = open_lane.priority and j.ready_at > @now
                     order by j.queue, j.task, j.priority, j.ready_at, j.id limit 1) f
            union all
            select min(until) from paused) upcoming),
       (select count(*) from picked) < least((select count(*) from candidate), :n),
       exists (select 1 from picked where rank > :limit and not fresh),
       (select filter_version from @meta)
  -- As in claim: where all may be tried again, the commit does not wait for the disk.
  from (select case when not exists (select 1 from picked where not fresh)
                    then set_config('synchronous_commit', 'off', true) end) hasty
