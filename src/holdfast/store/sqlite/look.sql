-- When the next lease, the next pause and the next pause by filter end, and the next tick falls due; whether there is
-- anything to rescue, to expire or to let go, and whether pauses by filter stand; since when the first call on many jobs is silent; and which code the schema
-- serves.
with recursive
@ended_hold
select (select min(expires_at) from @leases) as next_lease_end,
       (@first_tick) as next_tick,
       (select min(until) from @pauses p where @stands(p)) as next_pause_end,
       (select min(until) from @pauses p where @stands(p) and p.kind = 'filter') as next_filter_end,
       exists (select 1 from @pauses p where @stands(p) and p.kind = 'filter') as filter_pauses,
       exists (select 1 from @leases where expires_at < @now) as expired_leases,
       exists (select 1 from @jobs j indexed by @jobs_expiring where @expired(j)) as expired_jobs,
       exists (select 1 from ended_hold) as ended_holds,
       exists (select 1 from @workers where id = :worker) as known,
       exists (select 1 from @workers where id = :worker and stop_requested_at is not null) as stop_requested,
       exists (select 1 from @sources) as adopted,
       (select min(seen_at) from @bulk_calls) as bulk_seen,
       exists (select 1 from @deltas) as deltas,
       (select version from @meta) as version, (select oldest_code from @meta) as oldest_code
