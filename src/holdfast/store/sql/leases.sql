-- name: lapsed_leases
-- Leases that expired this long ago and were not rescued, by worker.
select worker, count(*) as leases, sum(held) as jobs, min(expires_at) as expired_at
  from @leases
 where expires_at < @after(minus_grace)
 group by worker
 order by worker
