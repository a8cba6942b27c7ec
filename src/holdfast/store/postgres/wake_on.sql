-- On a caller's transaction: wake workers when it commits, unless due jobs of the same kind wait already (then they
-- are awake, and a NOTIFY would only make commits queue for one lock, F18). Asked for in the order of the index: where
-- many jobs are due, `exists` would be planned as a scan of the table. Only what fell due of late counts: before that there
-- may be very many dead entries (docs/decisions/0013), and a wake-up too many does no harm.
select pg_notify(:channel, :payload)
 where (select 1 from @jobs
         where ready_at is not null and queue = :queue and task = :task and priority = :priority
           and ready_at > @now - interval '2 seconds' and ready_at <= @now and id <> :id and (expires_at is null or attempt > 0 or expires_at > @now)
         order by queue, task, priority, ready_at, id limit 1) is null
