-- Crons: one row each.

-- name: crons
-- Every cron with its pause, even a pause that has ended: ticks that fell into it are skipped.
select @cron_and_pause(c, p)
  from @crons c
  left join @pauses p on p.kind = 'cron' and p.name = c.name
 order by c.name

-- name: next_tick
select (@first_tick) as next_at, @now as now

-- name: declare_cron
-- A worker that starts writes what its code declares: the latest start wins, and all workers follow the row. People
-- write the others. The next tick changes only with the schedule; otherwise a tick that is due would be lost. No row back:
-- the name belongs to one of the other kind.
insert into @crons (name, task, args, expression, timezone, catch_up, queue, priority, max_attempts, tags, next_at)
values (:name, :task, :args, :expression, :timezone, :catch_up, :queue, :priority, :max_attempts, :tags, :next_at)
on conflict (name) do update
   set next_at = case when @crons.expression = excluded.expression and @crons.timezone = excluded.timezone
                      then @crons.next_at else excluded.next_at end,
       expression = excluded.expression, timezone = excluded.timezone, catch_up = excluded.catch_up,
       queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts, tags = excluded.tags,
       task = excluded.task, args = excluded.args
 where (@crons.args is null) = (excluded.args is null)
returning name

-- name: rename_cron
-- A task was renamed: its cron continues under the new name, with its last and next tick, unless that cron already exists.
update @crons set name = :name, task = :name
 where name = :alias and args is null and not exists (select 1 from @crons c where c.name = :name)

-- name: rename_pause
update @pauses set name = :name
 where kind = 'cron' and name = :alias and not exists (select 1 from @pauses p where p.kind = 'cron' and p.name = :name)

-- name: drop_cron
-- One that a task declares, or one that people made.
delete from @crons where name = :name and (args is null) = :declared returning name

-- name: advance_cron
-- Take a tick: whoever finds the cron as they read it takes the tick, everyone else gets no row. Ticks only move forward,
-- whatever happens to clocks and expressions, so none is taken twice. Without a tick, only the next one is set.
update @crons
   set next_at = :next_at, last_at = coalesce(:tick, last_at)
 where name = :name and next_at = :due and expression = :expression and timezone = :timezone
   and coalesce(last_at < :tick, true)
returning name, task, args, queue, priority, max_attempts, tags

-- name: skip_cron
-- A pause ends: ticks that fell into it are skipped. A last tick in the future was taken by a wrong clock; if it stayed, no
-- tick would be taken before it.
update @crons
   set next_at = :next_at, last_at = case when last_at > @now then null else last_at end
 where name = :name

-- name: cron
-- What a job of this cron is made from.
select name, task, args, queue, priority, max_attempts, tags from @crons where name = :name
