-- The watchdog's one statement: mark the worker present; tell when the next lease ends, when the next job and the next
-- tick of its crons fall due, and which code the schema serves.
with recursive
@lanes,
seen as (
    update @workers set seen_at = @clock where id = :worker
)
select (select extract(epoch from min(expires_at) - @now)::float8 from @leases) as next_lease_end,
       (select extract(epoch from min(at) - @now)::float8 from (
            select min(ready_at) as at from open_lane
            union all
            select min(suspect_at) from suspect
            union all
            select min(until) from paused) upcoming) as next_due,
       (select extract(epoch from min(next_at) - @now)::float8 from @crons where name = any(:crons)) as next_tick,
       exists (select 1 from @leases where expires_at < @now) as expired_leases,
       coalesce((select expires_at from @jobs
                  where expires_at is not null and ready_at is not null and attempt = 0
                  order by expires_at limit 1) <= @now, false) as expired_jobs,
       (select version from @meta) as version, (select oldest_code from @meta) as oldest_code
