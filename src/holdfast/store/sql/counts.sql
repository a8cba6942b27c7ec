-- How many jobs are in each state, by queue and task. Reads the whole table: for summaries and tests, not for screens.
select queue, task, state, count(*) as jobs, cast(sum(pending) as bigint) as pending
  from @jobs
 group by queue, task, state
