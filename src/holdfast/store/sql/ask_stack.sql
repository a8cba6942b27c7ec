-- Ask the holder of a running job for its handler's stack.
insert into @stacks (id, job_id, fence, asked_at) values (:id, :job_id, :fence, @clock)
