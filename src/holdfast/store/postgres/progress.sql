-- What a handler saves under its lease.

-- name: checkpoint
-- Save progress under the lease, and put the job on the list if it has work pending. Returns what people have asked for
-- meanwhile. No row back: the lease was lost.
with saved as (
    update @jobs
       set checkpoint = :checkpoint, pending = :pending, done = coalesce(:done, done), progressed_at = @clock
     where id = :id and state = 'running' and fence = :fence
    returning id, pending, cancel_requested, pause_requested
),
listed as (
    insert into @pending (job_id) select id from saved where pending > 0 on conflict do nothing
)
select cancel_requested, pause_requested from saved

-- name: keep_step
-- Keep what a step returned, under the lease: the job is locked, so that no rescue comes between. Returns what people have
-- asked for meanwhile. No row back: the lease was lost. A result kept before stays: its reply was lost.
with held as materialized (
    select id, life, attempt, cancel_requested, pause_requested
      from @jobs
     where id = :id and state = 'running' and fence = :fence
       for no key update
),
kept as (
    insert into @steps (job_id, name, life, attempt, ended_at, result)
    select id, :name, life, attempt, @clock, :result from held
    on conflict (job_id, name) do nothing
)
select cancel_requested, pause_requested from held
