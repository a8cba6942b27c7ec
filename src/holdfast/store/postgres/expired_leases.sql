-- Leases to rescue: past their end (when expiry counts), or of workers known to be dead. Each is taken by one
-- watchdog only; the others skip it.
select l.fence::text, l.worker, l.held, l.job_ids,
       (select count(*) from @leases o where o.worker = l.worker) as leases
  from @leases l
 where (:by_expiry and l.expires_at < @now) or l.worker = any(:dead::text[])
 order by l.worker, l.expires_at, l.fence
 limit :limit for update of l skip locked
