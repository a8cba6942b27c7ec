-- How attempts ended that did not succeed, and how many jobs that concerns. Reads the whole history.
select outcome, count(*) as attempts, count(distinct job_id) as jobs
  from @attempts
 where outcome <> 'succeeded'
 group by outcome
 order by outcome
