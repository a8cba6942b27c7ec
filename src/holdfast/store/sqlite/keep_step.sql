-- Keep what a step returned, in a transaction that has seen the lease.
insert into @steps (job_id, name, life, attempt, ended_at, result)
select id, :name, life, attempt, @clock, :result
  from @jobs
 where id = :id and state = 'running' and fence = :fence
on conflict (job_id, name) do nothing
