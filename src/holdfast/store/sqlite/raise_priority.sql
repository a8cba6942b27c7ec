-- An enqueue joins a job that waits under the same key, and asks for a higher priority: the job gets it.
update @jobs set priority = :priority
 where id = :id and state in ('queued', 'paused') and priority < :priority
returning id
