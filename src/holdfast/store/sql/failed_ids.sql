-- The jobs that failed last. Walks the index of failed jobs.
select id from @jobs where failed_at is not null order by failed_at desc limit :limit
