-- Where claim_recent is to look: every lane of these tasks that has ready jobs, paused or not, with the age of its first
-- job in seconds; the newest job; and how long this took here, whoever waits however far away.
with recursive
@lanes
select json_agg(json_build_array(queue, task, priority, extract(epoch from @now - ready_at))) as lanes,
       (select max(id) from @jobs) as newest,
       extract(epoch from clock_timestamp() - statement_timestamp())::float8 as took
  from lane where task = any(:tasks)
