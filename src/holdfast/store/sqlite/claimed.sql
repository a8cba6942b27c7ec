-- What we have taken, read when that is committed. As one JSON document: the driver gives the interpreter away and takes
-- it back for every row, and would wait in line for it each time.
select json_group_array(json_array(id, task, queue, args, attempt, max_attempts, priority, checkpoint, correlation_id,
                        suspicion, case when attempt = 1 then expires_at end))  -- what has begun once expires no more
  from @jobs
 where id in (select value from json_each(:ids)) and state = 'running' and fence = :fence
