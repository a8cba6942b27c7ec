-- When the next lease ends and the next tick falls due, whether there is anything to rescue, to expire or to let go, and
-- which code the schema serves.
with recursive
@ended_hold
select (select min(expires_at) from @leases) as next_lease_end,
       (select min(next_at) from @crons where name in (select value from json_each(:crons))) as next_tick,
       exists (select 1 from @leases where expires_at < @now) as expired_leases,
       exists (select 1 from @jobs indexed by @jobs_expiring
                where expires_at <= @now and (ready_at is not null or held_by is not null) and attempt = 0) as expired_jobs,
       exists (select 1 from ended_hold) as ended_holds,
       exists (select 1 from @workers where id = :worker) as known,
       (select version from @meta) as version, (select oldest_code from @meta) as oldest_code
