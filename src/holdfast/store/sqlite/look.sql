-- When the next lease ends, whether there is anything to rescue or to expire, and which code the schema serves.
select (select min(expires_at) from @leases) as next_lease_end,
       exists (select 1 from @leases where expires_at < @now) as expired_leases,
       exists (select 1 from @jobs indexed by @jobs_expiring
                where expires_at <= @now and ready_at is not null and attempt = 0) as expired_jobs,
       (select version from @meta) as version, (select oldest_code from @meta) as oldest_code
