-- Reads of whole lanes, whoever serves them. In the order of the claim's index, so that it is read, whatever the statistics
-- say.

-- name: every_lane
-- Each lane with its first due time, and how many jobs are due and how many lie ahead, each counted up to :most.
with recursive
@lanes
select queue, task, priority, ready_at,
       (select count(*) from (select 1 from @jobs j @by_ready
                               where @in_lane(j, lane) and j.ready_at <= @now @in_order(j) limit :most) d) as due,
       (select count(*) from (select 1 from @jobs j @by_ready
                               where @in_lane(j, lane) and j.ready_at > @now @in_order(j) limit :most) s) as scheduled
  from lane limit :lanes

-- name: waiting
-- What is queued, by queue and task: when the first of it is due, and how many are due, counted up to :most in each lane.
with recursive
@lanes
select queue, task, min(ready_at) as due_at,
       cast(sum((select count(*) from (select 1 from @jobs j @by_ready
                                        where @in_lane(j, lane) and j.ready_at <= @now @in_order(j) limit :most) d))
            as bigint) as due
  from lane
 group by queue, task
 order by queue, task
 limit :lanes

-- name: lane_page
-- The next jobs of a lane, after the one named.
select j.id, j.ready_at, j.queue, j.task, j.args from @jobs j @by_ready
 where j.ready_at is not null and j.queue = :queue and j.task = :task and j.priority = :priority
   and (j.ready_at, j.id) > (:after_at, :after_id)
 @in_order(j)
 limit :limit
