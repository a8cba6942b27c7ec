-- The history of attempts.

-- name: attempt
-- Adds an attempt to the history. Sent again after a lost reply, it changes nothing.
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
-- The output of an attempt that succeeded: the only case in which a success leaves a row in the history.
insert into @attempts (job_id, fence, life, number, worker, outcome, started_at, ended_at, output)
select id, fence, life, attempt, worker, 'succeeded', started_at, @clock, :output
  from @jobs
 where id = :id and fence = :fence and state = 'succeeded'
on conflict (job_id, fence) do nothing

-- name: recorded
-- Has this attempt's outcome already been recorded? Finished jobs keep their fence; other outcomes leave a row in the
-- history. A job that a watchdog ended keeps its fence, too, but the outcome of its holder was not recorded: it is lost.
select 1
 where exists (select 1 from @attempts
                where job_id = :id and fence = :fence and outcome not in ('crashed', 'lost'))
    or (exists (select 1 from @jobs
                 where id = :id and fence = :fence and state in ('succeeded', 'failed', 'cancelled'))
        and not exists (select 1 from @attempts where job_id = :id and fence = :fence))

-- name: outcomes
-- How the attempts that did not succeed ended, and how many jobs they belong to. Reads the whole history.
select outcome, count(*) as attempts, count(distinct job_id) as jobs
  from @attempts
 where outcome <> 'succeeded'
 group by outcome
 order by outcome

-- name: delete_attempts
delete from @attempts where job_id @any(ids)
