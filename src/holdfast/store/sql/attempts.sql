-- The history of attempts.

-- name: attempt
-- One attempt of history. Written again after a lost reply, it stays as it was.
insert into @attempts (job_id, fence, life, number, worker, outcome, started_at, ended_at,
                       error_code, error_message, traceback, output)
values (:id, :fence, :life, :number, :worker, :outcome, :started_at, @clock,
        :error_code, :error_message, :traceback, :output)
on conflict (job_id, fence) do nothing

-- name: attempts
select job_id, fence, life, number, worker, outcome, started_at, ended_at, error_code, error_message, traceback,
       output
  from @attempts
 where job_id = :id
 order by life, ended_at, number

-- name: output
-- What an attempt wrote that has succeeded: the one case in which a success leaves a row of history.
insert into @attempts (job_id, fence, life, number, worker, outcome, started_at, ended_at, output)
select id, fence, life, attempt, worker, 'succeeded', started_at, @clock, :output
  from @jobs
 where id = :id and fence = :fence and state = 'succeeded'
on conflict (job_id, fence) do nothing

-- name: recorded
-- Was this attempt's outcome written already? Finished jobs keep their fence; other endings leave a row of history.
-- A job that the watchdog ended keeps its fence too, but its holder's outcome was not written: that one is lost.
select 1
 where exists (select 1 from @attempts
                where job_id = :id and fence = :fence and outcome not in ('crashed', 'lost'))
    or (exists (select 1 from @jobs
                 where id = :id and fence = :fence and state in ('succeeded', 'failed', 'cancelled'))
        and not exists (select 1 from @attempts where job_id = :id and fence = :fence))

-- name: outcomes
-- How attempts ended that did not succeed, and how many jobs that concerns. Reads the whole history.
select outcome, count(*) as attempts, count(distinct job_id) as jobs
  from @attempts
 where outcome <> 'succeeded'
 group by outcome
 order by outcome

-- name: delete_attempts
delete from @attempts where job_id @any(ids)
