-- name: seen
update @workers set seen_at = @clock, polling = :polling, memory = :memory where id = :worker
