-- The database's clock: the only one that counts.
select @clock as now
