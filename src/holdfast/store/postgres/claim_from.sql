-- As claim, from lanes that a worker was told of: what it does not know, it need not find.
with told as materialized (
    select l.queue, l.task, l.priority
      from unnest(:lane_queues::text[], :lane_tasks::text[], :lane_priorities::smallint[]) l (queue, task, priority)
     where not exists (select 1 from @pauses p
                        where ((p.kind = 'queue' and p.name = l.queue) or (p.kind = 'task' and p.name = l.task))
                          and @stands(p))
),
candidate as materialized (
    select c.id, told.priority, c.ready_at
      from told cross join lateral
           (select j.id, j.ready_at from @jobs j
             where j.ready_at is not null and j.queue = told.queue and j.task = told.task
               and j.priority = told.priority and j.ready_at <= @now
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
@taken
@answer
union all
select null, null, null, null, null, null, null, null, null, null, null, null,
       (select count(*) from picked) < least((select count(*) from candidate), :n),
       exists (select 1 from picked where rank > :limit and not fresh),
       (select filter_version from @meta)
  -- As in claim: where all may be tried again, the commit does not wait for the disk.
  from (select case when not exists (select 1 from picked where not fresh)
                    then set_config('synchronous_commit', 'off', true) end) hasty
