select id, state, queue, priority from @jobs where task = :task and key = :key and holds_key
