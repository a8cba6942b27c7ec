-- Leases with nothing left under them: of their jobs, those that ended in this same trip need no second look. One that the
-- watchdog has locked is left to it: waiting could deadlock.
delete from @leases where fence in (
    select l.fence from @leases l
     where l.fence = any(:fences::uuid[])
       and not exists (select 1 from @jobs j
                        where j.id = any(array(select unnest(l.job_ids) except select unnest(:ended::bigint[])))
                          and j.fence = l.fence and j.state = 'running')
       for update of l skip locked)
