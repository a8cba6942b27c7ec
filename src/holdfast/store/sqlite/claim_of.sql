-- What a claim took, looked up by its fence: after a commit whose reply was lost, or of jobs that could not
-- be read: others may have inserted text that is none.
select j.id, j.task, j.queue, j.args, j.attempt, j.max_attempts, j.priority, j.checkpoint, j.correlation_id,
       j.suspicion, case when j.attempt = 1 then j.expires_at end
  from @leases l, json_each(l.job_ids) held
  join @jobs j on j.id = held.value and j.fence = l.fence and j.state = 'running'
 where l.fence = :fence
 order by j.priority desc, j.run_at, j.id
