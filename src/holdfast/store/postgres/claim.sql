-- Take due jobs, the most urgent first: priority, then due time, then id. The last row has no id: it tells when the
-- next one falls due, whether some could not be locked, and whether some were passed over.
--
-- The first `limit` may be any; those after them (`n` in all) are claimed ahead, for slots that will be free in a moment:
-- only jobs that were never tried and may be tried more than once. Others are passed over until there is a slot.
--
-- The picked rows are locked with SKIP LOCKED under the LIMIT, so two workers take different jobs and neither waits.
-- `j.ready_at <= …` is checked again on the locked row: one that somebody claimed meanwhile is no longer ready. They
-- are materialised before the update, so that no plan can run the LIMIT twice. Rows are found again by an array of
-- ids, not by a join: the estimates of what the lanes bring are far off, and a join would be planned as one with the
-- whole table. `coalesce` there keeps the planner from going by another index than that of the ids.
--
-- It knows pauses of queues and tasks. Pauses by filter are judged by who claims: it tells their version.
with recursive
@lanes,
due as materialized (
    select * from open_lane where ready_at <= @now
),
-- Where one lane alone is due, its jobs are locked as the index brings them.
only_lane as materialized (
    select * from due where (select count(*) from due) = 1
),
straight as materialized (
    select s.* from only_lane cross join lateral
           (select j.id, j.attempt = 0 and j.max_attempts > 1 as fresh from @jobs j
             where j.ready_at is not null and j.queue = only_lane.queue and j.task = only_lane.task
               and j.priority = only_lane.priority and j.ready_at <= @now
               and (j.ready_at, j.id) >= (only_lane.ready_at, only_lane.id)
               and (j.expires_at is null or j.attempt > 0 or j.expires_at > @now)
             order by j.queue, j.task, j.priority, j.ready_at, j.id
             limit :n for update of j skip locked) s
),
-- Where several are, candidates are read without locks, a few more than wanted, and locked in order. They are read up to a
-- cut in that order: if k lanes have `depth` jobs each before it, k * depth is enough. A few jobs deep in all lanes a
-- first cut is found, then nearer ones, deeper in the lanes that reach so far: none is read through for what others have.
-- Jobs that others may have locked (`xmax` is no older than the oldest transaction under way) are read but not counted, so
-- there is always enough behind them. The row comparison stands alone: beside `ready_at <= @now` it would not end the scan.
cut (priority, due_at, id, depth, open, horizon) as (
    select -101::smallint, @now, 0::bigint, least(:reach::bigint / count(*) + 4, :reach::bigint), true,
           age(pg_snapshot_xmin(pg_current_snapshot())::xid)
      from due where not exists (select 1 from only_lane) having count(*) > 0
    union all
    select coalesce(nearer.priority, cut.priority), coalesce(nearer.due_at, cut.due_at), coalesce(nearer.id, cut.id),
           least(cut.depth * 2, :reach::bigint), nearer.deep > 0 and cut.depth < :reach::bigint, cut.horizon
      from cut cross join lateral
           (select (array_agg(priority))[(:reach::bigint - 1) / cut.depth + 1] as priority,
                   (array_agg(ready_at))[(:reach::bigint - 1) / cut.depth + 1] as due_at,
                   (array_agg(id))[(:reach::bigint - 1) / cut.depth + 1] as id, count(*) as deep
              from (select d.* from due cross join lateral
                           (select j.id, j.priority, j.ready_at from @jobs j
                             where j.ready_at is not null and j.queue = due.queue and j.task = due.task
                               and j.priority = due.priority
                               and (j.ready_at, j.id) >= (due.ready_at, due.id)
                               and (j.ready_at, j.id) <= (
                                       case when due.priority > cut.priority then @now else cut.due_at end,
                                       case when due.priority > cut.priority then 9223372036854775807 else cut.id end)
                               and (j.expires_at is null or j.attempt > 0 or j.expires_at > @now)
                               and age(j.xmax) > cut.horizon
                             order by j.queue, j.task, j.priority, j.ready_at, j.id
                            offset cut.depth - 1 limit 1) d
                     where due.priority >= cut.priority
                     order by d.priority desc, d.ready_at, d.id) in_order) nearer
     where cut.open
),
candidate as materialized (
    select c.* from cut cross join due cross join lateral
           (select j.id, j.priority, j.ready_at as due_at, age(j.xmax) <= cut.horizon as locked from @jobs j
             where j.ready_at is not null and j.queue = due.queue and j.task = due.task and j.priority = due.priority
               and (j.ready_at, j.id) >= (due.ready_at, due.id)
               and (j.ready_at, j.id) <= (
                       case when due.priority > cut.priority then @now else cut.due_at end,
                       case when due.priority > cut.priority then 9223372036854775807 else cut.id end)
               and (j.expires_at is null or j.attempt > 0 or j.expires_at > @now)
             order by j.queue, j.task, j.priority, j.ready_at, j.id
             limit :reach::bigint * 20) c
     where not cut.open and due.priority >= cut.priority
),
merged as materialized (
    select j.id, j.attempt = 0 and j.max_attempts > 1 as fresh from @jobs j
     where j.id = any(array(select id from candidate order by priority desc, due_at, id
                             limit :reach + (select count(*) from candidate where locked)))
       and coalesce(j.ready_at, 'infinity') <= @now
     order by j.priority desc, j.ready_at, j.id
     limit :n for update of j skip locked
),
picked as materialized (
    select id, fresh, row_number() over () as rank
      from (select * from straight union all select * from merged) found
),
chosen as (
    select c.id from picked c where (c.rank <= :limit or c.fresh)
),
@taken
@answer
union all
select null, null, null, null, null, null, null, null, null, null, null,
       (select extract(epoch from min(at) - @now)::float8 from (
            select min(ready_at) as at from open_lane where ready_at > @now
            union all
            select min(f.ready_at) from due cross join lateral
                   (select j.ready_at from @jobs j
                     where j.ready_at is not null and j.queue = due.queue and j.task = due.task
                       and j.priority = due.priority and j.ready_at > @now
                     order by j.queue, j.task, j.priority, j.ready_at, j.id limit 1) f
            union all
            select min(until) from paused) upcoming),
       -- Less than wanted: is that all there is, or were some locked by others?
       case when (select count(*) from picked) < :n
            then (select count(*) from picked) < (
                     select count(*) from candidate) + (
                     select count(*) from only_lane cross join lateral
                            (select 1 from @jobs j
                              where j.ready_at is not null and j.queue = only_lane.queue and j.task = only_lane.task
                                and j.priority = only_lane.priority and j.ready_at <= @now
                                and (j.ready_at, j.id) >= (only_lane.ready_at, only_lane.id)
                                and (j.expires_at is null or j.attempt > 0 or j.expires_at > @now)
                              order by j.queue, j.task, j.priority, j.ready_at, j.id limit :n) there)
            else false end,
       exists (select 1 from picked where rank > :limit and not fresh),
       (select filter_version from @meta)
  -- A claim of jobs that may be tried again does not wait until it is on disk: should the server crash in that moment,
  -- they are queued as before, and the fence keeps out whoever had claimed them.
  from (select case when not exists (select 1 from picked where not fresh)
                    then set_config('synchronous_commit', 'off', true) end) hasty
