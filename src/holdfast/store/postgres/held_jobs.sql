-- Some of the jobs that this holds; those that somebody else has locked are left to them. From its name to its name: with
-- `held_by = …` the order of the ids alone would do, and be read from the table's first job on.
select id, queue, task, args from @jobs where held_by >= :held_by and held_by <= :held_by order by held_by, id limit :limit
   for update skip locked
