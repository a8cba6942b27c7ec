-- Another life: attempts start from 0; history, checkpoint and steps are kept. Not while another job has the key
-- (retake_keys). First, all finished jobs that have these keys or may take them back are locked, by task and key, which is
-- the order of bulk enqueues: otherwise the two could deadlock. No other jobs are locked: whoever works on one may hold
-- its lock for long. (`count` forces the locks to come first: a join might find that it needs none of the rows.)
with keys as materialized (
    select task, key from @jobs where id @any(ids) and state in ('failed', 'cancelled') and key is not null
),
locked as materialized (
    select id from @jobs
     where (id @any(ids) and state in ('failed', 'cancelled'))
        or id = any(array(select h.id from keys k join @jobs h on h.task = k.task and h.key = k.key and h.holds_key
                           where h.state in ('succeeded', 'failed', 'cancelled')))
     order by task, key, id for update
)
update @jobs j
   set state = 'queued', run_at = @clock, ready_at = @clock,
       attempt = 0, life = life + 1, crashes = 0, suspicion = 0,
       fence = null, worker = null, started_at = null, finished_at = null, failed_at = null, expires_at = null,
       error_code = null, error_message = null, error_fingerprint = null,
       asked_at = null, asked_by = null, asked_why = null
 where (select count(*) from locked) >= 0 and j.id @any(ids)
   and j.state in ('failed', 'cancelled') and (j.key is null or j.holds_key)
returning j.id, j.state, j.queue
