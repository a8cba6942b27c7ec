-- Cancel queued jobs that were not started before their expiry, a bounded batch.
update @jobs
   set state = 'cancelled', finished_at = @clock, ready_at = null, held_by = null,
       error_code = 'EXPIRED', error_message = 'not started before its expiry'
 where id in (select id from @jobs j indexed by @jobs_expiring where @expired(j) order by expires_at limit :limit)
returning id, queue, awaited
