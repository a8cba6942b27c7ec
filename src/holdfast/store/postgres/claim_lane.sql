-- As claim_from, from the one lane that a worker was told of: what most wake-ups are about, and the shortest way to a job.
-- Its jobs are locked as the index brings them. Where a pause stands it takes nothing. It tells the
-- same in every row; where it took nothing, in one that has no job.
with pause as materialized (
    select 1 from @pauses p
     where ((p.kind = 'queue' and p.name = :queue) or (p.kind = 'task' and p.name = :task)) and @stands(p)
),
picked as materialized (
    select id, fresh, row_number() over () as rank
      from (select j.id, j.attempt = 0 and j.max_attempts > 1 as fresh from @jobs j
             where j.ready_at is not null and j.queue = :queue and j.task = :task and j.priority = :priority
               and j.ready_at <= @now
               and (j.expires_at is null or j.attempt > 0 or j.expires_at > @now)
               and not exists (select 1 from pause)
             order by j.queue, j.task, j.priority, j.ready_at, j.id
             limit :n for update of j skip locked) found
),
chosen as (
    select id from picked where rank <= :limit or fresh
),
@taken
select t.id, t.task, t.queue, t.args, t.attempt, t.max_attempts, t.priority, t.checkpoint, t.correlation_id,
       t.suspicion, t.expires_in, null::float8 as next_due, false as more, info.passed, info.filter_version
  from (select exists (select 1 from picked where rank > :limit and not fresh) as passed,
               (select filter_version from @meta) as filter_version,
               -- As in claim: where all may be tried again, the commit does not wait for the disk.
               case when not exists (select 1 from picked where not fresh)
                    then set_config('synchronous_commit', 'off', true) end as hasty
        offset 0) info left join taken t on true
 order by t.run_at, t.id
