select kind, name, by, reason, until, created_at
  from @pauses
 where until is null or until > @now
 order by kind, name
