-- How many due jobs of one lane are taken before this one, counted up to :most; and the smallest id among them. The lane is
-- read in its order, so that those before it come first: no more than :most are looked at.
select count(*) as jobs, min(id) as first
  from (select j.id, j.ready_at
          from @jobs j @by_ready
         where j.ready_at is not null and j.queue = :queue and j.task = :task and j.priority = :lane and @due(j)
         @in_order(j)
         limit :most)
 where :lane > :priority or (ready_at, id) < (:due_at, :id)
