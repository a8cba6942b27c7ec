-- How many due jobs would be taken before this one by workers of these tasks and queues, counted up to :most; and the
-- smallest id among them. The lanes are the claim's own; each is read in its order, so that those before it come first:
-- no more than :most are looked at.
with recursive
@lanes,
before as materialized (
    select c.id
      from open_lane cross join lateral
           (select j.id, j.ready_at from @jobs j
             where j.ready_at is not null and j.queue = open_lane.queue and j.task = open_lane.task
               and j.priority = open_lane.priority and j.ready_at <= @now
               and (j.expires_at is null or j.attempt > 0 or j.expires_at > @now)
             order by j.queue, j.task, j.priority, j.ready_at, j.id
             limit :most) c
     where open_lane.ready_at <= @now
       and (open_lane.priority > :priority
            or (open_lane.priority = :priority and (c.ready_at, c.id) < (:due_at::timestamptz, :id)))
    limit :most
)
select count(*) as jobs, min(id) as first from before
