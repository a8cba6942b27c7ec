-- Keep what a step returned, under the lease: its row is locked, so that no rescue comes between. Says what people have
-- asked meanwhile. No row back: the lease was lost. Kept before: the reply was lost, it stays.
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
