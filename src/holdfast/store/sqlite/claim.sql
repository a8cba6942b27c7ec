-- Take these jobs, chosen a moment ago under the same write lock.
update @jobs
   set state = 'running', fence = :fence, worker = :worker, started_at = @clock,
       attempt = attempt + 1, ready_at = null
 where id in (select value from json_each(:ids)) and state = 'queued'
