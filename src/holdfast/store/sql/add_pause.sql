-- Pause a queue, a task, a cron or what a filter means, with who asked, why and until when.
insert into @pauses (kind, name, by, reason, until, created_at)
values (:kind, :name, :by, :reason, coalesce(@after(delay), :until), @clock)
on conflict (kind, name) do update
   set by = excluded.by, reason = excluded.reason, until = excluded.until, created_at = excluded.created_at
