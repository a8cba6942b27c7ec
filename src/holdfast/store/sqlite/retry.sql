-- Another life: attempts start from 0; history, checkpoint and steps are kept. Not while another job has the key
-- (retake_keys).
update @jobs
   set state = 'queued', run_at = @clock, ready_at = @clock,
       attempt = 0, life = life + 1, crashes = 0, suspicion = 0,
       fence = null, worker = null, started_at = null, finished_at = null, failed_at = null, expires_at = null,
       error_code = null, error_message = null, error_fingerprint = null,
       asked_at = null, asked_by = null, asked_why = null
 where id @any(ids) and state in ('failed', 'cancelled') and (key is null or holds_key)
returning id, state, queue
