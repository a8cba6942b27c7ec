-- Pause a queue, a task or what a filter means, durably, with who and why and until when.
insert into @pauses (kind, name, queues, tasks, arguments, by, reason, until, created_at)
values (:kind, :name, :queues, :tasks, :arguments, :by, :reason, coalesce(@after(delay), :until), @clock)
on conflict (kind, name) do update
   set by = excluded.by, reason = excluded.reason, until = excluded.until, created_at = excluded.created_at
