-- How quickly jobs of these tasks went of late: of those enqueued just before this one, how many ended within the last
-- while, and since when. Walks the primary key, a bounded way.
select count(*) as ended, extract(epoch from @now - min(finished_at))::float8 as seconds
  from (select task, finished_at from @jobs where id < :id order by id desc limit :most) recent
 where task = any(:tasks) and finished_at > @after(minus_span)
