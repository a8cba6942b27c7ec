-- Some of the jobs that this holds.
select id, queue, task, args from @jobs indexed by @jobs_held where held_by = :held_by order by id limit :limit
