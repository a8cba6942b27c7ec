select job_id, fence, life, number, worker, outcome, started_at, ended_at, error_code, error_message, traceback,
       output
  from @attempts
 where job_id = :id
 order by life, ended_at, number
