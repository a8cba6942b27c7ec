-- The store itself.

-- name: meta
select store_id, version, oldest_code from @meta

-- name: now
-- The database's clock, for what has to be reckoned outside of it.
select @clock as now
