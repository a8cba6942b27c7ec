select id, name, host, pid, queues, tasks, crons, slots, started_at, seen_at from @workers order by started_at, id
