-- Leases to rescue: past their end (when expiry counts), or of workers known to be dead.
select fence, worker, held, job_ids,
       (select count(*) from @leases o where o.worker = l.worker) as leases
  from @leases l
 where (:by_expiry and expires_at < @now) or worker in (select value from json_each(:dead))
 order by worker, expires_at, fence
 limit :limit
