-- A worker that starts says what its code declares: the newest start decides, all others follow the row. The next tick
-- changes only with the schedule: else one that is due would be lost.
insert into @crons (name, expression, timezone, catch_up, queue, priority, max_attempts, tags, next_at)
values (:name, :expression, :timezone, :catch_up, :queue, :priority, :max_attempts, :tags, :next_at)
on conflict (name) do update
   set next_at = case when @crons.expression = excluded.expression and @crons.timezone = excluded.timezone
                      then @crons.next_at else excluded.next_at end,
       expression = excluded.expression, timezone = excluded.timezone, catch_up = excluded.catch_up,
       queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts, tags = excluded.tags
