-- The database's clock, for what has to be reckoned outside of it: the ticks of a cron.
select @now as now
