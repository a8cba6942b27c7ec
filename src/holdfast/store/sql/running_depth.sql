-- Of the jobs that leases name, how many run, where.
select queue, task, worker, count(*) as jobs
  from @jobs
 where id @any(ids) and state = 'running'
 group by queue, task, worker
