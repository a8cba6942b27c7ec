-- Finish a job we still hold, on the handler's own transaction. No row back: the lease was lost.
update @jobs set state = 'succeeded', finished_at = @clock, error_code = null, error_message = null, result = :result,
       done = coalesce(cast(:done as bigint), done), total = coalesce(cast(:total as bigint), total),
       note = coalesce(cast(:note as text), note),
       progressed_at = case when cast(:done as bigint) is null then progressed_at else @clock end
 where id = :id and state = 'running' and fence = :fence
returning id
