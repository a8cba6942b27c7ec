-- name: seen
update @workers set seen_at = @clock where id = :worker
