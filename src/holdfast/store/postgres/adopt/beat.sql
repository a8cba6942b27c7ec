-- Keep the lease columns of what our workers hold fresh, a statement apart from the renewals of leases, so that these never
-- wait for a user's row; and hear those of foreign holders.
create or replace function @beat_{{suffix}}(now timestamptz) returns void {{as_owner}} as {{quote}}
begin
    lock table {{table}} in row exclusive mode nowait;
    {{beat}}
    update @leases l set expires_at = f.lease_ends
      from (select o.fence, {{lease_ends:u}} as lease_ends
              from (select s.source_id::{{id_type}} as at, s.fence from @leases x cross join unnest(x.job_ids) b (id)
                      join @jobs s on s.id = b.id and s.fence = x.fence
                     where x.worker like 'foreign:%' and s.source = {{source}}) o
              join {{table}} u on u.{{id}} = o.at and {{said:u}} = 'running') f
     where l.fence = any(array(select x.fence from @leases x where x.worker like 'foreign:%' for update skip locked))
       and l.fence = f.fence and f.lease_ends > l.expires_at;
exception when others then
    if sqlstate like '40%' then
        raise;
    end if;
end {{quote}}
