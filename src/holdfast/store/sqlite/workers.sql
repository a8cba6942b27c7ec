-- name: seen
update @workers set seen_at = @clock, polling = :polling where id = :worker
