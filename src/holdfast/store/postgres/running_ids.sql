-- What the leases name: all that runs, and a little that has just ended.
select distinct unnest(job_ids) as id from @leases
