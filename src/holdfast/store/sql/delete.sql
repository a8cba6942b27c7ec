-- Forget a job and its history. Not while it runs.
delete from @jobs where id = :id and state <> 'running' returning state, queue
