-- The jobs that wait to be run alone.
select id from @jobs where suspect_at is not null order by task, suspect_at
