-- The store itself.

-- name: meta
select store_id, version, oldest_code from @meta

-- name: now
-- The database's clock, for calculations outside the database.
select @clock as now
