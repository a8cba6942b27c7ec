-- A task was renamed: its cron goes on under the new name, with the ticks it has taken and owes. Unless there is one already.
update @crons set name = :name
 where name = :alias and not exists (select 1 from @crons c where c.name = :name)
