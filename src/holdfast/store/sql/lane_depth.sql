-- How many of a lane are due, and how many lie ahead. No more are counted than asked for. In the order of the
-- index: so it is read, whatever the statistics say.
select (select count(*) from (select 1 from @jobs
                               where ready_at is not null and queue = :queue and task = :task
                                 and priority = :priority and ready_at <= @now
                               order by queue, task, priority, ready_at limit :limit) d) as due,
       (select count(*) from (select 1 from @jobs
                               where ready_at is not null and queue = :queue and task = :task
                                 and priority = :priority and ready_at > @now
                               order by queue, task, priority, ready_at limit :limit) s) as scheduled
