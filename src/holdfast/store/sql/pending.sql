-- The list of jobs that have work pending.

-- name: list_pending
-- Put those of these jobs that have work pending on the list.
insert into @pending (job_id)
select id from @jobs where id @any(ids) and pending > 0
on conflict do nothing

-- name: drop_pending
-- Take jobs off the list that have finished or were deleted. A bounded batch.
delete from @pending
 where job_id in (select p.job_id from @pending p
                   where (select j.state in ('queued', 'running', 'paused') from @jobs j where j.id = p.job_id) is not true
                   limit :limit)
returning job_id

-- name: delete_pending
delete from @pending where job_id @any(ids)
