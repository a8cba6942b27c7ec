with held as materialized (
        select j.source_id::{{id_type}} as at, j.worker, j.fence from @jobs j
         where j.id = any(array(select unnest(l.job_ids) from @leases l where l.worker not like 'foreign:%' and l.expires_at > now))
           and j.source = {{source}} and j.state = 'running' and j.worker not like 'foreign:%'
    ),
    free as materialized (
        select u.{{id}} as at from {{table}} u
         where u.{{id}} = any(array(select held.at from held)) and {{said:u}} = 'running'
           and ({{lease_ends:u}} is null or {{lease_ends:u}} < now + interval '{{beat_after}} seconds')
           and not exists (select 1 from held h where h.at = u.{{id}} and {{taken_from_held}})
           for no key update skip locked
    )
    update {{table}} u set {{beat_set}} where u.{{id}} = any(array(select free.at from free));
