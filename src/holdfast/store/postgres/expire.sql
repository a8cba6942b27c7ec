-- Cancel queued jobs that were not started before their expiry, a bounded batch.
with late as materialized (
    select id from @jobs
     where expires_at <= @now and expires_at is not null and (ready_at is not null or held_by is not null)
       and attempt = 0
     order by expires_at limit :limit for update skip locked
)
update @jobs j
   set state = 'cancelled', finished_at = @clock, ready_at = null, held_by = null,
       error_code = 'EXPIRED', error_message = 'not started before its expiry'
  from late where j.id = late.id and j.state = 'queued'
returning j.id, j.queue, j.awaited
