-- A new job with a key: the unique index decides which of several at once is the first. No row back: it is held.
insert into @jobs (queue, task, args, priority, max_attempts, run_at, ready_at, expires_at,
                   correlation_id, tags, key, holds_key)
values (:queue, :task, :args, :priority, :max_attempts, coalesce(:run_at, @after(delay)),
        coalesce(:run_at, @after(delay)), @after(expires_in), :correlation_id, :tags, :key, true)
on conflict (task, key) where holds_key do nothing
returning id
