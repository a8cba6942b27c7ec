-- name: claim_of
-- What a claim took, looked up by its fence: after a commit whose reply was lost.
select @columns(claimed, j)
  from @leases l join @jobs j on j.id = any(l.job_ids) and j.fence = l.fence and j.state = 'running'
 where l.fence = :fence::uuid
 order by j.priority desc, j.run_at, j.id

-- name: burn
-- A claim's reply was lost: take its fence, so that it can't happen any more if it has not. A backend that is still
-- busy with it either commits first (we wait for it here, and no row comes back) or fails on the same primary key.
-- The row is swept up like any lease that ran out.
insert into @leases (fence, worker, expires_at, held, job_ids)
values (:fence::uuid, 'nobody', @after(lease), 0, '{}')
on conflict (fence) do nothing
returning fence
