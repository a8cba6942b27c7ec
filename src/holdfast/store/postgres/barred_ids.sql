-- Some of the jobs that a pause set aside; those that somebody else has in hand are left to them.
select id from @jobs where barred_by = :name order by barred_by, id limit :limit for update skip locked
