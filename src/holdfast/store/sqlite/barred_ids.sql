-- Some of the jobs that a pause set aside.
select id from @jobs indexed by @jobs_barred where barred_by = :name order by id limit :limit
