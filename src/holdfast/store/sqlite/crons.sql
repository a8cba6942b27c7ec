-- Crons that a worker fires: those that its own tasks declare (`crons`), and those that people made for its tasks.

-- name: first_tick
-- When the first of them falls due. Of each task, the index has the first in front.
select min(at) from (
    select min(c.next_at) as at from @crons c where c.name in (select value from json_each(:crons)) and c.args is null
    union all
    select min((select min(c.next_at) from @crons c where c.task = t.value and c.args is not null))
      from json_each(:tasks) t)

-- name: due_crons
-- Those that are due, with their pauses. Nothing is read of the others, however many there are.
with due as (
    select c.* from @crons c
     where c.name in (select value from json_each(:crons)) and c.args is null and c.next_at <= @now
    union all
    select * from (select c.* from @crons c
                    where c.task in (select value from json_each(:tasks)) and c.args is not null and c.next_at <= @now
                    order by c.next_at limit :most)
)
select @cron_and_pause(c, p)
  from due c
  left join @pauses p on p.kind = 'cron' and p.name = c.name
