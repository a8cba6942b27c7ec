-- Finish jobs that succeeded, many at once.

-- name: succeed
-- Finish jobs of one claim that we still hold. Fewer rows changed than sent means some were lost.
update @jobs
   set state = 'succeeded', finished_at = @clock, error_code = null, error_message = null, error_fingerprint = null
 where id in (select value from json_each(:ids)) and state = 'running' and fence = :fence

-- name: succeed_with
-- The same, with a result each.
update @jobs
   set state = 'succeeded', finished_at = @clock, error_code = null, error_message = null, error_fingerprint = null,
       result = ended.value ->> 1
  from json_each(:ended) ended
 where @jobs.id = ended.value ->> 0 and state = 'running' and fence = :fence
