-- What people have asked of running jobs, whoever holds them.
select id, fence::text, false as lost, cancel_requested as cancel, pause_requested as pause
  from @jobs
 where (cancel_requested or pause_requested) and state = 'running'
 order by id
