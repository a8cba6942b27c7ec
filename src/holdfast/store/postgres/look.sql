-- The watchdog's one statement: mark the worker present; tell when the next lease ends, when the next job and the next
-- tick of its crons fall due, what there is of pauses by filter, since when the first call on many jobs is silent, which code
-- the schema serves, and the worker's place among those that serve the same and are open to wake-ups.
with recursive
@lanes,
@ended_hold,
seen as (
    update @workers set seen_at = @clock, open = :open, polling = :polling, memory = :memory where id = :worker
),
peers as (
    select w.id from @workers me join @workers w on w.tasks = me.tasks and w.queues is not distinct from me.queues
     where me.id = :worker and w.id <> me.id and w.open
       and w.seen_at > @now - make_interval(secs => 1.25 * w.lease)
)
select (select extract(epoch from min(expires_at) - @now)::float8 from @leases) as next_lease_end,
       (select extract(epoch from min(at) - @now)::float8 from (
            select min(ready_at) as at from open_lane
            union all
            select min(until) from paused) upcoming) as next_due,
       extract(epoch from (@first_tick) - @now)::float8 as next_tick,
       (select extract(epoch from min(until) - @now)::float8 from paused where kind = 'filter') as next_pause_end,
       exists (select 1 from paused where kind = 'filter') as filter_pauses,
       exists (select 1 from ended_hold) as ended_holds,
       exists (select 1 from @leases where expires_at < @now) as expired_leases,
       exists (select 1 from @jobs j where @expired(j) order by expires_at limit 1) as expired_jobs,
       exists (select 1 from @workers where id = :worker) as known,
       exists (select 1 from @workers where id = :worker and stop_requested_at is not null) as stop_requested,
       exists (select 1 from @sources) as adopted,
       (select extract(epoch from min(seen_at) - @now)::float8 from @bulk_calls) as bulk_seen,
       exists (select 1 from @deltas) as deltas,
       (select version from @meta) as version, (select oldest_code from @meta) as oldest_code,
       (select count(*) from peers where id < :worker) as rank, 1 + (select count(*) from peers) as count
