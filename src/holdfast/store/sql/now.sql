-- The database's clock, for what has to be reckoned outside of it.
select @clock as now
