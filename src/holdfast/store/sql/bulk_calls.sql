-- Verbs on many jobs that are under way: what is left of them, and who performs them.

-- name: add_bulk_call
insert into @bulk_calls (id, plan, holder, seen_at, remaining) values (:id, :plan, :holder, @clock, :remaining)

-- name: reach_bulk_call
-- Its holder is alive, and has come so far. No row: another one has taken the call over.
update @bulk_calls
   set seen_at = @clock, reached = coalesce(:reached, reached), remaining = remaining - :done
 where id = :id and holder = :holder
returning id

-- name: take_bulk_call
-- Take over the oldest call whose holder has gone silent. One of several takers gets it: the others see its new time.
update @bulk_calls
   set holder = :holder, seen_at = @clock
 where id = (select min(id) from @bulk_calls where seen_at < @after(minus_silent)) and seen_at < @after(minus_silent)
returning id, plan, reached, remaining

-- name: bulk_calls
-- Those under way, and of the newest calls of operators those on many jobs, each with how far it is.
select a.id, a.at, a.by, a.verb, a.what, a.parameters, a.reason, a.changed, a.asked, a.refused, a.ended_at,
       b.plan, b.seen_at, b.remaining
  from (select id from @bulk_calls
        union
        select id from (select id, verb, job_id from @audit order by id desc limit :window) newest
         where job_id is null and verb in ('retry', 'cancel', 'pause', 'resume', 'change', 'delete')) wanted
  join @audit a on a.id = wanted.id
  left join @bulk_calls b on b.id = a.id
 order by a.id desc
 limit :limit

-- name: drop_bulk_call
delete from @bulk_calls where id = :id and holder = :holder returning id
