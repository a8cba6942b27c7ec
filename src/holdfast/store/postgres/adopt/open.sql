-- For a claim: which of these jobs, locked by the caller, may be taken; their rows say so already. See open_sources. Jobs whose
-- rows are locked or can't be written wait a second; those whose rows say something else, or were tried by others since, too,
-- and are settled meanwhile. If the table can't be worked, or nearly all of its rows are locked, nothing of it is claimed for
-- a moment: otherwise claims would find nothing but its jobs.
create or replace function @open_{{suffix}}(ids bigint[], now timestamptz, by_fence uuid, by_worker text, clock timestamptz)
returns table (id bigint, args json) {{as_owner}} as {{quote}}
declare
    opened bigint[] := '{}';
    fresh json[] := '{}';
    one bigint[];
    its json[];
    trouble text;
begin
    begin
        lock table {{tables}} in row exclusive mode nowait;
        perform set_config('holdfast.ours', pg_trigger_depth()::text, true);
        begin
            select coalesce(array_agg(t.id), '{}'), coalesce(array_agg(t.args), '{}')
              from @take_{{suffix}}(ids, by_fence, by_worker, clock) t into opened, fresh;
        exception when others then  -- one of them is to blame, perhaps
            if sqlstate like '40%' then
                raise;
            end if;
            for i in 1 .. cardinality(ids) loop
                begin
                    select coalesce(array_agg(t.id), '{}'), coalesce(array_agg(t.args), '{}')
                      from @take_{{suffix}}(ids[i:i], by_fence, by_worker, clock) t into one, its;
                    opened := opened || one;
                    fresh := fresh || its;
                exception when others then
                    if sqlstate like '40%' or i >= 5 and cardinality(opened) = 0 then
                        raise;
                    end if;
                    trouble := sqlerrm;
                end;
            end loop;
        end;
        perform set_config('holdfast.ours', '', true);
        if cardinality(opened) < cardinality(ids) then
            with off as (
                update @jobs o set ready_at = now + interval '1 second'
                 where o.id = any(ids) and o.id <> all(opened) and o.state = 'queued' and o.ready_at is not null
                returning o.source_id, {{attempt_of:o}} as attempt
            )
            insert into @inbox (source, source_id)
            select {{source}}, off.source_id from off
             where (off.source_id, off.attempt) not in (select u.{{id}}::text, {{attempt:u}} from {{table}} u
                       where u.{{id}} = any(array(select o.source_id::{{id_type}} from @jobs o where o.id = any(ids)))
                         and {{said:u}} = 'queued');
            if cardinality(opened) = 0 and (trouble is not null or cardinality(ids) >= 10) then
                perform @rest_source({{source}}, now + interval '0.5 seconds', trouble);
            end if;
        end if;
    exception when others then
        if sqlstate like '40%' then
            raise;
        end if;
        perform set_config('holdfast.ours', '', true);
        perform @rest_source({{source}}, now + interval '1 second', sqlerrm);
        return;
    end;
    return query select * from unnest(opened, fresh);
end {{quote}}
