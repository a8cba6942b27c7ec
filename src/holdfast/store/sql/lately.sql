-- How many jobs came and how many ended within the last while, by queue, of the newest ones before an id. Walks the
-- primary key, a bounded way.
select queue, count(*) as jobs, sum(case when came then 1 else 0 end) as came,
       sum(case when ended then 1 else 0 end) as ended, min(case when came then created_at end) as came_since,
       min(case when ended then finished_at end) as ended_since, min(id) as lowest
  from (select id, queue, created_at, finished_at, created_at > @after(minus_span) as came,
               finished_at > @after(minus_span) as ended
          from @jobs where id < :before order by id desc limit :most) newest
 group by queue
