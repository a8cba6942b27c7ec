-- Stack requests: questions to the worker that holds a job, and its answers.

-- name: ask_stack
-- Ask the holder of a running job for its handler's stack.
insert into @stacks (id, job_id, fence, asked_at) values (:id, :job_id, :fence, @clock)

-- name: stack_asks
-- Who is to tell where its handler is. Nearly always nobody: the table is empty.
select distinct job_id, fence from @stacks where answered_at is null

-- name: answer_stack
-- Tell everyone who asked where the handler of this attempt is.
update @stacks set answer = :answer, answered_at = @clock
 where job_id = :job_id and fence = :fence and answered_at is null

-- name: stack_answer
-- What the holder told, and who that is now.
select s.answer, s.answered_at, j.state, j.worker, j.fence = s.fence as same
  from @stacks s left join @jobs j on j.id = s.job_id
 where s.id = :id

-- name: drop_stack
-- The question was answered, or given up; so were those that nobody took back.
delete from @stacks where id = :id or asked_at < @after(minus_age)
