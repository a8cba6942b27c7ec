-- Every cron, with its pause, even one that is over: what fell into it is let go.
select c.name, c.expression, c.timezone, c.catch_up, c.queue, c.priority, c.max_attempts, c.tags, c.next_at, c.last_at,
       p.created_at as paused_at, p.until as paused_until, p.by as paused_by, p.reason as paused_reason, @now as now
  from @crons c
  left join @pauses p on p.kind = 'cron' and p.name = c.name
 order by c.name
