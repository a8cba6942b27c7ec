-- Leases with nothing left under them. One that the watchdog has locked is left to it: waiting could deadlock.
delete from @leases where fence in (
    select l.fence from @leases l
     where l.fence = any(:fences::uuid[])
       and not exists (select 1 from @jobs j
                        where j.id = any(l.job_ids) and j.fence = l.fence and j.state = 'running')
       for update of l skip locked)
