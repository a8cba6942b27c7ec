-- Someone waits for this job: whoever finishes it says so.
update @jobs set awaited = true
 where id = :id and not awaited and state in ('queued', 'running', 'paused')
