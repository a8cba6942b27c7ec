-- The jobs that failed last. Walks the index of failed jobs.
select id, queue, task, attempt, failed_at, error_code, substr(error_message, 1, 300) as error_message
  from @jobs
 where failed_at is not null
 order by failed_at desc
 limit :most
