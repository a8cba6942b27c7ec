select id, state from @jobs where task = :task and key = :key and holds_key
