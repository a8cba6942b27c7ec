-- Jobs that wait to be run alone. No more are counted than asked for. In the order of their index: so it is read,
-- whatever the statistics say.
select queue, task, count(*) as jobs, min(suspect_at) as suspect_at
  from (select queue, task, suspect_at from @jobs where suspect_at is not null
         order by task, suspect_at limit :limit) s
 group by queue, task
