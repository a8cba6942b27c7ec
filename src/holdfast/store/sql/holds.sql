-- A queued job that may not be claimed is held: `held_by` names what holds it, and `ready_at` is null.

-- name: hold
-- Hold these queued jobs: they keep their due time, and no claim sees them. Only those that nothing holds yet, or the hold
-- that this one takes over from.
update @jobs
   set held_by = :held_by, ready_at = null
 where id @any(ids) and state = 'queued' and coalesce(held_by, '') = coalesce(cast(:instead_of as text), '')
returning id

-- name: let_go
-- What held these jobs has ended: they are ready again, in their old places.
update @jobs
   set held_by = null, ready_at = run_at
 where id @any(ids) and held_by = :held_by
returning id, queue

-- name: ended_holds
-- What still holds jobs although it has ended: a pause that is over, or gone.
with recursive
@ended_hold
select held_by from ended_hold
