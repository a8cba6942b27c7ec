-- A new job. `wake`: workers have to be told. They are awake if a job of the same kind, ready for less than a moment,
-- waits already: whoever brought it told them, and they look again where they found something. (A short moment: rows that
-- vacuum can't remove yet stand in the index as well.) Asked for in the order of the index, not with `exists`.
insert into @jobs (queue, task, args, priority, max_attempts, created_at, run_at, ready_at, expires_at,
                   correlation_id, tags)
values (:queue, :task, :args, :priority, :max_attempts, @clock, coalesce(:run_at, @after(delay)),
        coalesce(:run_at, @after(delay)), @after(expires_in), :correlation_id, :tags)
returning id, (select 1 from @jobs j
                where j.ready_at is not null and j.queue = :queue and j.task = :task and j.priority = :priority
                  and j.ready_at > @now - interval '0.1 s' and j.ready_at <= @now
                order by j.queue, j.task, j.priority, j.ready_at, j.id limit 1) is null as wake
