-- How many failed, where, of those that failed last. No more are counted than asked for.
select queue, task, count(*) as jobs
  from (select queue, task from @jobs where failed_at is not null order by failed_at desc limit :limit) f
 group by queue, task
