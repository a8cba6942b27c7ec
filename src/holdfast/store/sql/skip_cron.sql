-- A pause ends: what fell into it is let go. A last tick that lies ahead was taken by a clock that was wrong; with it, no
-- tick would be taken until then.
update @crons
   set next_at = :next_at, last_at = case when last_at > @now then null else last_at end
 where name = :name
