-- What the holder told, and who that is now.
select s.answer, s.answered_at, j.state, j.worker, j.fence = s.fence as same
  from @stacks s left join @jobs j on j.id = s.job_id
 where s.id = :id
