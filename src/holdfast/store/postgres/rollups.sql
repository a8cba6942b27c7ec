-- Deltas and the rollups that they are folded into (holdfast/store/rollups.py).

-- name: fold
-- Take deltas that nobody else is folding and add them up. In the order of the key: two that fold at once wait for each
-- other in one direction only.
with delta as materialized (
    delete from @deltas
     where ctid = any(array(select ctid from @deltas limit :limit for update skip locked))
    returning *
),
@counted,
folded as (
    insert into @rollups as r (grain, at, queue, task, what, detail, n, total)
    select g.grain, coalesce(date_bin(g.length, c.at, 'epoch'), '-infinity') as at,
           c.queue, case when g.charted then '' else c.task end, c.what,
           case when g.charted and c.what not in ('wait', 'run') then ''
                when g.grain = 'total' and c.what = 'error' then '' else c.detail end, sum(c.n), sum(c.total)
      from counted c
     cross join (values ('minute', interval '1 minute', false), ('hour', '1 hour', false), ('total', null, false),
                        ('15min', '15 minutes', true), ('3h', '3 hours', true)) g (grain, length, charted)
     where not g.charted or @charted(what)
     group by 1, 2, 3, 4, 5, 6
     order by 1, 2, 3, 4, 5, 6
    on conflict (grain, at, queue, task, what, detail) do update set n = r.n + excluded.n, total = r.total + excluded.total
)
select count(*) as folded from delta

-- name: counted
-- What deltas say, one row for each thing that is counted.
counted (at, queue, task, what, detail, n, total) as (
    select at, queue, task, what, detail, n, 0.0::float8 from delta where what is not null
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
    select j.started_at, 1, j.started_at, greatest(0, date_part('epoch', j.started_at - j.run_at) * 1000), null, null,
           left(j.queue, 200), left(j.task, 200), null, '', null, null
      from @leases l cross join unnest(l.job_ids) held (id)
      join @jobs j on j.id = held.id and j.fence = l.fence and j.state = 'running' and j.started_at is not null
)

-- name: rollup_counts
with @started,
@counted
select at, queue, task, what, detail, sum(n)::bigint as n, sum(total)::float8 as total
  from (select at, queue, task, what, detail, n, total from @rollups
         where grain = :grain::text and at >= :since::timestamptz and at < :until::timestamptz
        union all
        select date_trunc(:grain::text, at, 'UTC'), queue, task, what, detail, n, total from counted) c
 where at >= :since::timestamptz and at < :until::timestamptz
 group by at, queue, task, what, detail
 order by at, queue, task, what, detail

-- name: rollup_series
with @started,
@counted
select at, case when :by_queue then queue else '' end as queue, what,
       case when what in ('wait', 'run') then detail else '' end as detail, sum(n)::bigint as n, sum(total)::float8 as total
  from (select at, queue, what, detail, n, total from @rollups where grain = :grain::text and at >= :since::timestamptz
        union all
        select date_bin(make_interval(secs => :length), at, 'epoch'), queue, what, detail, n, total from counted) c
 where at >= :since::timestamptz and @charted(what)
 group by 1, 2, 3, 4

-- name: rollup_totals
with @started,
@counted
select null::timestamptz as at, queue, task, what, detail, sum(n)::bigint as n, sum(total)::float8 as total
  from (select queue, task, what, detail, n, total from @rollups where grain = 'total'
        union all
        select queue, task, what, case what when 'error' then '' else detail end, n, total from counted) c
 group by queue, task, what, detail
 order by queue, task, what, detail

-- name: forget_rollups
delete from @rollups
 where ctid = any(array(select ctid from @rollups where grain = :grain::text and at < @after(minus_kept)
                         limit :limit for update skip locked))
returning 1 as gone

-- name: rollups_overdue
select exists (select 1 from @rollups where grain = 'minute' and at < @after(minus_kept)) as overdue

-- name: cache_hit
select @count_cache_hit(:queue::text, :task::text, :n::bigint)

-- name: lost_claims
insert into @rollups as r (grain, at, queue, task, what, detail, n, total)
values ('total', '-infinity', '', '', 'lost_claim', '', :n, 0)
on conflict (grain, at, queue, task, what, detail) do update set n = r.n + excluded.n
