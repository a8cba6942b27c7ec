-- The claim: from all lanes, or from the one that a worker was told of; and the parts that both consist of.

-- name: claim
-- Take due jobs, the most urgent first: priority, then due time, then id. From all lanes that this worker serves; or, with
-- :queues empty, from lanes that are given, each from a floor on: those it was told of, or those it knows while looking
-- everywhere takes long (claim_floors.py). Told beside the jobs: when the next one falls due, and whether some could not be
-- locked.
--
-- It knows pauses of queues and tasks. Pauses by filter are judged by who claims (worker/intake.py).
with recursive
@lanes,
@given,
due as materialized (
    select * from open_lane where ready_at <= @now
    union all
    select queue, task, priority, ready_at, id from given where open
),
only_lane as materialized (
    select * from due where (select count(*) from due) = 1
),
@straight,
-- Where several lanes are due, candidates are read without locks, a few more than wanted, and locked in order. They are read
-- up to a cut in that order: if k lanes have `depth` jobs each before it, k * depth is enough. A few jobs deep in all lanes
-- a first cut is found, then nearer ones, deeper in the lanes that reach so far: none is read through for what others have.
-- Jobs that others may have locked (`xmax` is no older than the oldest transaction under way) are read but not counted, so
-- there is always enough behind them. The row comparison stands alone: beside `ready_at <= @now` it would not end the scan.
cut (priority, due_at, id, depth, open, horizon) as (
    select -101::smallint, @now, 0::bigint, least(:reach::bigint / count(*) + 4, :reach::bigint), true,
           age(pg_snapshot_xmin(pg_current_snapshot())::xid)
      from due having count(*) > 1
    union all
    select coalesce(nearer.priority, cut.priority), coalesce(nearer.due_at, cut.due_at), coalesce(nearer.id, cut.id),
           least(cut.depth * 2, :reach::bigint), nearer.deep > 0 and cut.depth < :reach::bigint, cut.horizon
      from cut cross join lateral
           (select (array_agg(priority))[(:reach::bigint - 1) / cut.depth + 1] as priority,
                   (array_agg(ready_at))[(:reach::bigint - 1) / cut.depth + 1] as due_at,
                   (array_agg(id))[(:reach::bigint - 1) / cut.depth + 1] as id, count(*) as deep
              from (select d.* from due cross join lateral
                           (select j.id, j.priority, j.ready_at from @jobs j
                             where @in_lane(j, due) and @unexpired(j)
                               and (j.ready_at, j.id) >= (due.ready_at, due.id)
                               and (j.ready_at, j.id) <= (
                                       case when due.priority > cut.priority then @now else cut.due_at end,
                                       case when due.priority > cut.priority then 9223372036854775807 else cut.id end)
                               and age(j.xmax) > cut.horizon
                             @in_order(j)
                            offset cut.depth - 1 limit 1) d
                     where due.priority >= cut.priority
                     order by d.priority desc, d.ready_at, d.id) in_order) nearer
     where cut.open
),
candidate as materialized (
    select c.* from cut cross join due cross join lateral
           (select j.id, j.priority, j.ready_at as due_at, age(j.xmax) <= cut.horizon as locked from @jobs j
             where @in_lane(j, due) and @unexpired(j)
               and (j.ready_at, j.id) >= (due.ready_at, due.id)
               and (j.ready_at, j.id) <= (
                       case when due.priority > cut.priority then @now else cut.due_at end,
                       case when due.priority > cut.priority then 9223372036854775807 else cut.id end)
             @in_order(j)
             limit :reach::bigint * 20) c
     where not cut.open and due.priority >= cut.priority
),
-- They are found again by an array of ids, not by a join: the estimates of what the lanes bring are far off, and a join
-- would be planned as one with the whole table. `coalesce` keeps the planner from going by another index than that of the
-- ids. `ready_at` is checked again on the locked row: a job that somebody claimed meanwhile is no longer ready.
merged as materialized (
    select j.id, @fresh(j) as fresh, j.source is not null as adopted from @jobs j
     where j.id = any(array(select id from candidate order by priority desc, due_at, id
                             limit :reach + (select count(*) from candidate where locked)))
       and coalesce(j.ready_at, 'infinity') <= @now
     order by j.priority desc, j.ready_at, j.id
     limit :n for update of j skip locked
),
picked as materialized (
    select id, fresh, adopted, row_number() over () as rank
      from (select * from straight union all select * from merged) found
),
@taken,
found as (
    select (select extract(epoch from min(at) - @now)::float8 from (
                select min(ready_at) as at from open_lane where ready_at > @now
                union all
                select min(f.ready_at) from due cross join lateral
                       (select j.ready_at from @jobs j where @in_lane(j, due) and j.ready_at > @now
                         @in_order(j) limit 1) f
                union all
                select min(until) from paused) upcoming) as next_due,
           -- Less than wanted: is that all there is, or were some locked by others?
           case when (select count(*) from picked) < :n
                then (select count(*) from picked) < (select count(*) from candidate) + (
                         select count(*) from only_lane cross join lateral
                                (select 1 from @jobs j where @in_lane(j, only_lane) and @due(j)
                                    and (j.ready_at, j.id) >= (only_lane.ready_at, only_lane.id)
                                  @in_order(j) limit :n) there)
                else false end
           -- Some were put off, as their rows are locked or say something else: the next ones may be free.
           or exists (select 1 from picked c where c.adopted and @wanted(c) and c.id not in (select id from opened)) as more
)
@answer

-- name: claim_lane
-- As claim, from the one lane that a worker was told of: what most wake-ups are about, and the shortest way to a job. It
-- doesn't ask whether others have some locked: after every such claim there is a look at all lanes, within 0.1 s, and
-- within 0.01 s if it found nothing.
with only_lane as materialized (
    select l.queue, l.task, l.priority, '-infinity'::timestamptz as ready_at, 0::bigint as id
      from (select :queue::text as queue, :task::text as task, :priority::smallint as priority) l
     where not @paused(l) and not @closed(l)
),
@straight,
picked as materialized (
    select id, fresh, adopted, row_number() over () as rank from straight
),
@taken,
found as (
    select null::float8 as next_due, false as more
)
@answer

-- name: straight
-- How a claim picks from one lane: its first due jobs are locked as the index brings them. With SKIP LOCKED under the
-- LIMIT, so two workers take different jobs and neither waits. What is picked is materialised before the update, so that no
-- plan can run the LIMIT twice.
straight as materialized (
    select s.* from only_lane cross join lateral
           (select j.id, @fresh(j) as fresh, j.source is not null as adopted from @jobs j
             where @in_lane(j, only_lane) and @due(j) and (j.ready_at, j.id) >= (only_lane.ready_at, only_lane.id)
             @in_order(j)
             limit :n for update of j skip locked) s
)

-- name: taken
-- How a claim takes what it picked, under one lease. The first `limit` may be any; those after them are claimed ahead, for
-- slots that will be free in a moment: only jobs that were never tried and may be tried again. Others are passed over until
-- there is a slot. Of adopted tables those are taken whose rows can be, too, with the arguments that these have by now. The
-- function is not called where there are none (`having`).
opened as materialized (
    select o.id, o.args from (select array_agg(c.id) as ids from picked c where @wanted(c) and c.adopted having count(*) > 0) a
     cross join lateral @open_sources(a.ids, @now, :fence::uuid, :worker, @clock) o
),
refreshed as materialized (
    select jsonb_object_agg(id, args::text) as args from opened where args is not null
),
chosen as materialized (
    select c.id from picked c where @wanted(c) and not c.adopted
    union all
    select id from opened
),
taken as (
    update @jobs j
       set state = 'running', fence = :fence::uuid, worker = :worker, started_at = @clock,
           attempt = j.attempt + 1, ready_at = null,
           args = coalesce(((select args from refreshed) ->> j.id::text)::json, j.args)
     where j.id = any(array(select id from chosen)) and j.state = 'queued'
    returning @columns(claimed, j), j.run_at
),
lease as (
    insert into @leases (fence, worker, expires_at, held, job_ids)
    select :fence::uuid, :worker, @after(lease), :held + count(*), array_agg(id order by id)
      from taken having count(*) > 0
)

-- name: answer
-- What a claim answers: the jobs it took, in order, and one row without a job. That one tells what the claim `found` out
-- beside them, whether some were passed over, and the version of the pauses by filter.
(select @names(claimed), null::float8 as next_due, false as more, false as passed, null::bigint as filter_version
   from taken order by priority desc, run_at, id)
union all
select @nulls(claimed), next_due, more,
       exists (select 1 from picked where rank > :limit and not fresh), (select filter_version from @meta)
  -- A claim of jobs that may be tried again does not wait until it is on disk: should the server crash in that moment,
  -- they are queued as before, and the fence keeps out whoever had claimed them.
  from found, (select case when not exists (select 1 from picked where not fresh)
                           then set_config('synchronous_commit', 'off', true) end) hasty
