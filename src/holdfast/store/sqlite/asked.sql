-- What people have asked of running jobs, whoever holds them.
select id, fence, 0 as lost, cancel_requested as cancel, pause_requested as pause
  from @jobs indexed by @jobs_asked
 where (cancel_requested or pause_requested) and state = 'running'
