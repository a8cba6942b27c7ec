select name, life, attempt, ended_at, result
  from @steps
 where job_id = :id
 order by ended_at, name
