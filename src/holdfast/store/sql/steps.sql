-- Durable steps.

-- name: step
-- What a step of a running job returned, and what people have asked for meanwhile. No row back: the lease was lost. No
-- name: the step has not run yet.
select s.name, s.result, j.cancel_requested, j.pause_requested
  from @jobs j
  left join @steps s on s.job_id = j.id and s.name = :name
 where j.id = :id and j.state = 'running' and j.fence = :fence

-- name: steps
select name, life, attempt, ended_at, result
  from @steps
 where job_id = :id
 order by ended_at, name

-- name: delete_steps
delete from @steps where job_id @any(ids)
