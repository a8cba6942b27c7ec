-- What a handler saves under its lease.

-- name: checkpoint
-- Save progress under the lease. Returns what people have asked for meanwhile. No row back: the lease was lost.
update @jobs
   set checkpoint = :checkpoint, pending = :pending, done = coalesce(:done, done), progressed_at = @clock
 where id = :id and state = 'running' and fence = :fence
returning cancel_requested, pause_requested

-- name: keep_step
-- Keep what a step returned, in a transaction that has checked the lease.
insert into @steps (job_id, name, life, attempt, ended_at, result)
select id, :name, life, attempt, @clock, :result
  from @jobs
 where id = :id and state = 'running' and fence = :fence
on conflict (job_id, name) do nothing
