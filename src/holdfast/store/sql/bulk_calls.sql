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

-- name: drop_bulk_call
delete from @bulk_calls where id = :id and holder = :holder returning id
