-- Leases with nothing left under them.
delete from @leases
 where fence in (select value from json_each(:fences))
   and not exists (select 1 from @jobs j
                    where j.id in (select value from json_each(job_ids)) and j.fence = @leases.fence
                      and j.state = 'running')
