-- Stack requests, from people to the worker that holds a job, and the answers.

-- name: ask_stack
-- Ask the holder of a running job for its handler's stack.
insert into @stacks (id, job_id, fence, asked_at) values (:id, :job_id, :fence, @clock)

-- name: stack_asks
-- The attempts whose stack is requested. Nearly always none: the table is empty.
select distinct job_id, fence from @stacks where answered_at is null

-- name: answer_stack
-- Answer everyone who asked where the handler of this attempt is.
update @stacks set answer = :answer, answered_at = @clock
 where job_id = :job_id and fence = :fence and answered_at is null

-- name: stack_answer
-- The holder's answer, and who holds the job now.
select s.answer, s.answered_at, j.state, j.worker, j.fence = s.fence as same
  from @stacks s left join @jobs j on j.id = s.job_id
 where s.id = :id

-- name: drop_stack
-- A request was answered or given up. Removes abandoned ones, too.
delete from @stacks where id = :id or asked_at < @after(minus_age)
