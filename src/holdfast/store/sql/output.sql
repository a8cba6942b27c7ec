-- What an attempt wrote that has succeeded: the one case in which a success leaves a row of history.
insert into @attempts (job_id, fence, life, number, worker, outcome, started_at, ended_at, output)
select id, fence, life, attempt, worker, 'succeeded', started_at, @clock, :output
  from @jobs
 where id = :id and fence = :fence and state = 'succeeded'
on conflict (job_id, fence) do nothing
