-- The newest jobs that match, between two ids. The caller bounds how far apart these are.
select id from @jobs
 where id < :before and id > :after
   and @matching
 order by id desc
 limit :limit
