-- A pause ends: what fell into it is let go.
update @crons set next_at = :next_at where name = :name and next_at < :next_at
