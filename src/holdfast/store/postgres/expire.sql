-- Cancel queued jobs that were not started before their expiry, a bounded batch.
with late as materialized (
    select id from @jobs j where @expired(j) order by expires_at limit :limit for update skip locked
)
update @jobs j
   set state = 'cancelled', finished_at = @clock, ready_at = null, held_by = null,
       error_code = 'EXPIRED', error_message = 'not started before its expiry'
  from late where j.id = late.id and j.state = 'queued'
returning j.id, j.queue, j.awaited
