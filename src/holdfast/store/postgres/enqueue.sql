-- A new job.
insert into @jobs (queue, task, args, priority, max_attempts, run_at, ready_at, expires_at,
                   correlation_id, tags)
values (:queue, :task, :args, :priority, :max_attempts, coalesce(:run_at, @after(delay)),
        coalesce(:run_at, @after(delay)), @after(expires_in), :correlation_id, :tags)
returning id
