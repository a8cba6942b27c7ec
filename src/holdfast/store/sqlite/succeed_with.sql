-- The same, with a result each.
update @jobs
   set state = 'succeeded', finished_at = @clock, error_code = null, error_message = null, result = ended.value ->> 1
  from json_each(:ended) ended
 where @jobs.id = ended.value ->> 0 and state = 'running' and fence = :fence
