-- Leases, and the running jobs under them.

-- name: renew
-- Extend the leases we hold, only ever forward. A lease that expired but was not rescued is still ours.
update @leases set expires_at = greatest(expires_at, @after(lease)), held = :held
 where fence = any(:fences::uuid[])
returning fence

-- name: requests
-- Of the jobs in flight: those that are no longer ours, and what people have asked of the others. (`offset 0` makes the
-- planner look up each job by its id; a join might read the whole table, as nothing tells how many jobs are in flight.)
select h.id, h.fence::text, j.id is null or j.state <> 'running' or j.fence is distinct from h.fence as lost,
       coalesce(j.cancel_requested, false) as cancel, coalesce(j.pause_requested, false) as pause
  from (select (e ->> 0)::bigint as id, (e ->> 1)::uuid as fence from json_array_elements(:held::json) e) h
  left join lateral (select * from @jobs where id = h.id offset 0) j on true
 where j.id is null or j.state <> 'running' or j.fence is distinct from h.fence
    or j.cancel_requested or j.pause_requested

-- name: asked
-- What people have asked of running jobs, whoever holds them.
select id, fence::text, false as lost, cancel_requested as cancel, pause_requested as pause
  from @jobs
 where (cancel_requested or pause_requested) and state = 'running'
 order by id

-- name: expired_leases
-- Leases to rescue: expired ones (if expiry counts), and those of workers known to be dead. Only one watchdog takes each;
-- the others skip it. A foreign worker's heartbeat is in the user's table, which is asked before its lease counts as expired.
select l.fence::text, l.worker, l.held, l.job_ids,
       (select count(*) from @leases o where o.worker = l.worker) as leases
  from @leases l
 where ((:by_expiry and l.expires_at < @now) or l.worker = any(:dead::text[]))
   and (l.worker not like 'foreign:%' or @lapsed(l.fence, @now))
 order by l.worker, l.expires_at, l.fence
 limit :limit for update of l skip locked

-- name: leased_jobs
-- The running jobs of a lease. A locked one is just being finished: it is left for the next look.
select id, queue, task, priority, correlation_id, attempt, max_attempts, life, crashes, suspicion, started_at, cancel_requested, pause_requested,
       awaited
  from @jobs
 where id = any(:ids) and state = 'running' and fence = :fence::uuid
 order by id for update skip locked

-- name: drop_leases
-- Drop leases without running jobs. One that a watchdog has locked is left to it: waiting could deadlock.
delete from @leases where fence in (
    select l.fence from @leases l
     where l.fence = any(:fences::uuid[])
       and not exists (select 1 from @jobs j
                        where j.id = any(l.job_ids) and j.fence = l.fence and j.state = 'running')
       for update of l skip locked)
