insert into @workers (id, name, host, pid, queues, tasks, slots, lease, started_at, seen_at)
values (:id, :name, :host, :pid, :queues, :tasks, :slots, :lease, @clock, @clock)
