-- See lapsed. A row that no longer says that it is worked is settled instead. Others may have taken it over from one of theirs
-- that died: their table has counted that attempt.
create or replace function @lapsed_{{suffix}}(lease uuid, row_id text, now timestamptz) returns boolean {{as_owner}} as {{quote}}
declare
    r record;
begin
    lock table {{table}} in row exclusive mode nowait;
    select {{said:u}} as said, {{lease_ends:u}} as lease_ends, {{held_attempt:u}} as attempt into r
      from {{table}} u where u.{{id}} = row_id::{{id_type}} for no key update skip locked;
    if found and r.said = 'running' and (r.lease_ends is null or r.lease_ends < now) then
        if {{counts_attempts}} then
            update @jobs set attempt = r.attempt
             where id = any(array(select id from @jobs where fence = lease and state = 'running' and attempt < r.attempt
                                     and source = {{source}} and source_id = row_id for no key update skip locked));
        end if;
        return true;
    elsif found and r.said = 'running' then
        update @leases set expires_at = r.lease_ends where fence = lease;
        return false;
    end if;
    insert into @inbox (source, source_id) values ({{source}}, row_id);
    update @leases set expires_at = now + interval '5 seconds' where fence = lease;
    return false;
exception when others then
    if sqlstate like '40%' then
        raise;
    end if;
    update @leases set expires_at = now + interval '5 seconds' where fence = lease;
    return false;
end {{quote}}
