-- Cancel queued jobs that were not started before their expiry, a bounded batch.
update @jobs
   set state = 'cancelled', finished_at = @clock, ready_at = null, held_by = null,
       error_code = 'EXPIRED', error_message = 'not started before its expiry'
 where id in (select id from @jobs indexed by @jobs_expiring
               where expires_at <= @now and (ready_at is not null or held_by is not null) and attempt = 0
               order by expires_at limit :limit)
returning id, queue, awaited
