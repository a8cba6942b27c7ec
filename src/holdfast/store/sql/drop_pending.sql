-- Take jobs off the list that are finished, or gone. A bounded batch.
delete from @pending
 where job_id in (select p.job_id from @pending p
                   where (select j.state in ('queued', 'running', 'paused') from @jobs j where j.id = p.job_id) is not true
                   limit :limit)
returning job_id
