insert into @workers (id, name, host, pid, queues, tasks, crons, slots, started_at, seen_at)
values (:id, :name, :host, :pid, :queues, :tasks, :crons, :slots, @clock, @clock)
