-- Another life: attempts from 0; history, checkpoint and steps are kept. If its key went to another job meanwhile, it stays there.
update @jobs
   set state = 'queued', run_at = @clock, ready_at = @clock,
       attempt = 0, life = life + 1, crashes = 0, suspicion = 0,
       fence = null, worker = null, started_at = null, finished_at = null, failed_at = null, expires_at = null,
       error_code = null, error_message = null, asked_at = null, asked_by = null, asked_why = null
 where id @any(ids) and state in ('failed', 'cancelled')
returning id, state, queue
