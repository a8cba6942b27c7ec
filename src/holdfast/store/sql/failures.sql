-- Why jobs failed: how many by task and error code. Walks the index of failed jobs.
select task, error_code, count(*) as jobs
  from @jobs
 where failed_at is not null
 group by task, error_code
 order by count(*) desc, task, error_code
