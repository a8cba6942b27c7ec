insert into @workers (id, name, host, pid, queues, tasks, slots, started_at, seen_at)
values (:id, :name, :host, :pid, :queues, :tasks, :slots, @clock, @clock)
