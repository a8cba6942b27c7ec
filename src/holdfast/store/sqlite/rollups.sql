-- Deltas and the rollups that they are folded into (holdfast/store/rollups.py).

-- name: fold_reach
-- How far one step reaches.
select max(id) as reached, count(*) as folded from (select id from @deltas order by id limit :limit) step

-- name: fold
with delta as materialized (select * from @deltas where id <= :reached),
@counted
insert into @rollups (grain, at, queue, task, what, detail, n, total)
select g.grain, case when g.length then @bin(at, length) else '' end, c.queue,
       case when g.charted then '' else c.task end, c.what,
       case when g.charted and c.what not in ('wait', 'run') then ''
            when g.grain = 'total' and c.what = 'error' then '' else c.detail end, sum(c.n), sum(c.total)
  from counted c
 cross join (select 'minute' as grain, 60 as length, false as charted
             union all select 'hour', 3600, false union all select 'total', 0, false
             union all select '15min', 900, true union all select '3h', 10800, true) g
 where not g.charted or @charted(what)
 group by 1, 2, 3, 4, 5, 6
on conflict (grain, at, queue, task, what, detail) do update set n = n + excluded.n, total = total + excluded.total

-- name: folded
delete from @deltas where id <= :reached

-- name: counted
-- What deltas say, one row for each thing that is counted.
counted (at, queue, task, what, detail, n, total) as materialized (
    select at, queue, task, what, detail, n, 0.0 from delta where what is not null
    union all
    select began, queue, task, 'started', '', n, 0.0 from delta where began is not null
    union all
    select began, queue, task, 'wait', @bucket(mean), n, waited_ms from (select *, waited_ms / n as mean from delta) d
     where waited_ms is not null
    union all
    select at, queue, task, 'run', @bucket(mean), n, ran_ms from (select *, ran_ms / n as mean from delta) d
     where ran_ms is not null
    union all
    select at, queue, task, 'rescued', '', n, 0.0 from delta where rescued
    union all
    select at, queue, task, 'restarted', origin, n, 0.0 from delta where origin is not null
    union all
    select at, queue, task, 'error', error, n, 0.0 from delta where error is not null
)

-- name: started
-- With what runs now: that it was started is counted when the attempt ends.
delta as materialized (
    select at, n, began, waited_ms, ran_ms, rescued, queue, task, what, detail, origin, error from @deltas
    union all
    select j.started_at, 1, j.started_at, max(0, (julianday(j.started_at) - julianday(j.run_at)) * 86400000.0), null, null,
           j.queue, j.task, null, '', null, null
      from @leases l cross join json_each(l.job_ids) held
     cross join @jobs j on j.id = held.value and j.fence = l.fence and j.state = 'running' and j.started_at is not null
)

-- name: rollup_counts
with @started,
@counted
select at, queue, task, what, detail, sum(n) as n, sum(total) as total
  from (select at, queue, task, what, detail, n, total from @rollups where grain = :grain and at >= :since and at < :until
        union all
        select case :grain when 'minute' then substr(at, 1, 16) || ':00.000000' else substr(at, 1, 13) || ':00:00.000000' end as at,
               queue, task, what, detail, n, total
          from counted) c
 where at >= :since and at < :until
 group by at, queue, task, what, detail
 order by at, queue, task, what, detail

-- name: rollup_series
with @started,
@counted
select at, case when :by_queue then queue else '' end as queue, what,
       case when what in ('wait', 'run') then detail else '' end as detail, sum(n) as n, sum(total) as total
  from (select at, queue, what, detail, n, total from @rollups where grain = :grain and at >= :since
        union all
        select @bin(at, length), queue, what, detail, n, total from counted cross join (select :length as length)) c
 where at >= :since and @charted(what)
 group by 1, 2, 3, 4

-- name: rollup_totals
with @started,
@counted
select null as at, queue, task, what, detail, sum(n) as n, sum(total) as total
  from (select queue, task, what, detail, n, total from @rollups where grain = 'total'
        union all
        select queue, task, what, case what when 'error' then '' else detail end, n, total from counted) c
 group by queue, task, what, detail
 order by queue, task, what, detail

-- name: forget_rollups
delete from @rollups
 where rowid in (select rowid from @rollups where grain = :grain and at < @after(minus_kept) limit :limit)
returning 1 as gone

-- name: rollups_overdue
select exists (select 1 from @rollups where grain = 'minute' and at < @after(minus_kept)) as overdue

-- name: cache_hit
insert into @deltas (at, n, queue, task, what) values (@clock, :n, :queue, :task, 'cache_hit')

-- name: succeeding
-- What successes that are about to be recorded count, as one JSON document.
select json_group_array(json_array(queue, task, coalesce(started_at, @clock), run_at))
  from @jobs
 where id in (select value from json_each(:ids)) and state = 'running' and fence = :fence

-- name: delta
insert into @deltas (at, n, began, waited_ms, ran_ms, queue, task, what)
values (@clock, :n, :began, :waited_ms, :ran_ms, :queue, :task, :what)

-- name: lost_claims
insert into @rollups as r (grain, at, queue, task, what, detail, n, total)
values ('total', '', '', '', 'lost_claim', '', :n, 0)
on conflict (grain, at, queue, task, what, detail) do update set n = r.n + excluded.n
