-- Hold these queued jobs: they keep their due time, and no claim sees them. Only those that nothing holds yet, or the hold
-- that this one takes over from.
update @jobs
   set held_by = :held_by, ready_at = null
 where id @any(ids) and state = 'queued' and coalesce(held_by, '') = coalesce(cast(:instead_of as text), '')
returning id
