-- The pauses by filter that mean this job.
select s.name, s.by, s.reason, s.until, s.created_at
  from @pauses s join @jobs j on j.id = :id
 where s.kind = 'filter' and (s.until is null or s.until > @now) and @meant
 order by s.name
