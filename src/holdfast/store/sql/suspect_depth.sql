-- Jobs that wait to be run alone. No more are counted than asked for.
select queue, task, count(*) as jobs, min(suspect_at) as suspect_at
  from (select queue, task, suspect_at from @jobs where suspect_at is not null limit :limit) s
 group by queue, task
