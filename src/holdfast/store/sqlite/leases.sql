-- Leases, and the running jobs under them.

-- name: renew
-- Extend the leases we hold, only ever forward. A lease that expired but was not rescued is still ours.
update @leases set expires_at = max(expires_at, @after(lease)), held = :held
 where fence in (select value from json_each(:fences))
returning fence

-- name: requests
-- Of the jobs in flight: those that are no longer ours, and what people have asked of the others.
select h.value ->> 0 as id, h.value ->> 1 as fence,
       (j.id is null or j.state <> 'running' or j.fence is not h.value ->> 1) as lost,
       coalesce(j.cancel_requested, 0) as cancel, coalesce(j.pause_requested, 0) as pause
  from json_each(:held) h
  left join @jobs j on j.id = h.value ->> 0
 where j.id is null or j.state <> 'running' or j.fence is not h.value ->> 1
    or j.cancel_requested or j.pause_requested

-- name: asked
-- What people have asked of running jobs, whoever holds them.
select id, fence, 0 as lost, cancel_requested as cancel, pause_requested as pause
  from @jobs indexed by @jobs_asked
 where (cancel_requested or pause_requested) and state = 'running'

-- name: expired_leases
-- Leases to rescue: expired ones (if expiry counts), and those of workers known to be dead.
select fence, worker, held, job_ids,
       (select count(*) from @leases o where o.worker = l.worker) as leases
  from @leases l
 where (:by_expiry and expires_at < @now) or worker in (select value from json_each(:dead))
 order by worker, expires_at, fence
 limit :limit

-- name: leased_jobs
-- The running jobs of a lease.
select id, queue, task, priority, correlation_id, attempt, max_attempts, life, crashes, suspicion, started_at, cancel_requested, pause_requested,
       awaited
  from @jobs
 where id in (select value from json_each(:ids)) and state = 'running' and fence = :fence
 order by id

-- name: drop_leases
-- Drop leases without running jobs.
delete from @leases
 where fence in (select value from json_each(:fences))
   and not exists (select 1 from @jobs j
                    where j.id in (select value from json_each(job_ids)) and j.fence = @leases.fence
                      and j.state = 'running')
