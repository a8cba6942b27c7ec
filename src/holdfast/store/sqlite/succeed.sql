-- Finish jobs of one claim that we still hold. Fewer rows changed than sent: some were lost.
update @jobs
   set state = 'succeeded', finished_at = @clock, error_code = null, error_message = null
 where id in (select value from json_each(:ids)) and state = 'running' and fence = :fence
