-- Save progress under the lease, and list the job if it has work pending. Says what people have asked meanwhile. No row
-- back: the lease was lost.
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
