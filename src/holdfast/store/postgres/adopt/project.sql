-- The same from the trigger on jobs, which must not fail because of the user's table: what can't be written is owed. Only a
-- result that does not fit its column is refused, so that its job fails; and conflicts are, so that they are tried again.
create or replace function @project_{{suffix}}(ids bigint[], was text[], workers text[], fences uuid[])
returns void {{as_owner}} as {{quote}}
declare
    owing bigint[];
begin
    begin
        perform set_config('holdfast.ours', pg_trigger_depth()::text, true);
        owing := @write_{{suffix}}(ids, was, workers, fences, false);
        perform set_config('holdfast.ours', '', true);
    exception when others then
        if sqlstate like '40%' then
            raise;
        elsif sqlstate ~ '^2[23]' and cardinality(ids) > 1 then
            for i in 1 .. cardinality(ids) loop
                perform @project_{{suffix}}(ids[i:i], was[i:i], workers[i:i], fences[i:i]);
            end loop;
            return;
        elsif sqlstate ~ '^2[23]' and {{has_results}} and exists (
                select 1 from @jobs where id = ids[1] and state = 'succeeded' and result is not null) then
            raise exception using errcode = '22HF1',
                message = format('the result of job %s does not fit its row in %s: %s', ids[1], {{table_text}}, sqlerrm);
        end if;
        owing := ids;
    end;
    update @jobs set owed = false where id = any(ids) and owed and (owing is null or id <> all(owing));
    if owing is not null then
        perform @owe({{source}}, owing, ids, workers, fences);
    end if;
end {{quote}}
