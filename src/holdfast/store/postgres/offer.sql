-- An idle worker offers to take the next job of each of these kinds. It does not wait for the disk: a server that crashed
-- has no session left that hears of anything. Tells the time.
with offered as (
    insert into @offers (fence, ear, worker, queue, task)
    select o.fence, :ear, :worker, o.queue, o.task
      from unnest(:fences::uuid[], :queues::text[], :tasks::text[]) o (fence, queue, task)
)
select extract(epoch from @clock)::float8, set_config('synchronous_commit', 'off', true)
