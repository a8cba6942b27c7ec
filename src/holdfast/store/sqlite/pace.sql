-- How quickly jobs of these tasks went of late: of those enqueued just before this one, how many ended within the last
-- while, and since when. Walks the primary key, a bounded way.
select count(*) as ended, (julianday(@now) - julianday(min(finished_at))) * 86400.0 as seconds
  from (select task, finished_at from @jobs where id < :id order by id desc limit :most) recent
 where task in (select value from json_each(:tasks)) and finished_at > @after(minus_span)
