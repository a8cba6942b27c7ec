-- The job of a tick, or one out of turn.
insert into @jobs (queue, task, args, priority, max_attempts, created_at, run_at, ready_at, correlation_id, tags)
select queue, name, '{}', priority, max_attempts, @clock, coalesce(:tick, @clock), coalesce(:tick, @clock),
       :correlation_id, tags
  from @crons where name = :name
returning id, queue
