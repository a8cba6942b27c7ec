-- Tell everyone who asked where the handler of this attempt is.
update @stacks set answer = :answer, answered_at = @clock
 where job_id = :job_id and fence = :fence and answered_at is null
