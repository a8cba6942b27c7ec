-- Which of these jobs match.
select id from @jobs
 where id @any(ids)
   and @matching
 order by id desc
 limit :limit
