-- Take a tick: whoever finds the cron as it was read takes it, everyone else finds no row. Ticks only ever go
-- forward, whatever happens to clocks and expressions: none is taken twice. Without a tick: go on to the next one.
update @crons
   set next_at = :next_at, last_at = coalesce(:tick, last_at)
 where name = :name and next_at = :due and expression = :expression and timezone = :timezone
   and coalesce(last_at < :tick, true)
returning name
