-- Some of the jobs that a pause set aside; those that somebody else has in hand are left to them. From its name to its
-- name: where it were equal to it, the order of the ids alone would do, and be read from the table's first job on.
select id from @jobs where barred_by >= :name and barred_by <= :name order by barred_by, id limit :limit
   for update skip locked
