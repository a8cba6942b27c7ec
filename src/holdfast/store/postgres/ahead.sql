-- How many due jobs would be taken before this one by workers of these tasks and queues, counted up to :most; and the
-- smallest id among them. Each lane is read in its order, so that those before it come first: no more than :most are
-- looked at.
with recursive
@lanes,
before as materialized (
    select c.id
      from open_lane cross join lateral
           (select j.id, j.ready_at from @jobs j where @in_lane(j, open_lane) and @due(j) @in_order(j) limit :most) c
     where open_lane.ready_at <= @now
       and (open_lane.priority > :priority
            or (open_lane.priority = :priority and (c.ready_at, c.id) < (:due_at::timestamptz, :id)))
    limit :most
)
select count(*) as jobs, min(id) as first from before
