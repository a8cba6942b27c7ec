-- What the leases name: all that runs, and a little that has just ended.
select distinct j.value as id from @leases l, json_each(l.job_ids) j
