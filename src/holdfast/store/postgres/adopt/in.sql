-- After others wrote to the table: append to the inbox what disagrees with its job. It reads jobs by their key, locks and
-- writes none, so no foreign statement waits for us, deadlocks with us or fails because of us. Should a column have been
-- renamed or changed, it only tells workers to look at the table.
create or replace function @in_{{suffix}}() returns trigger {{as_owner}} as {{quote}}
declare
    -- Transactions with one snapshot don't see what became of the jobs since: workers look at all that these wrote.
    blind constant boolean := current_setting('transaction_isolation') not in ('read committed', 'read uncommitted');
begin
    if (select count(*) from pg_attribute a
         where a.attrelid = tg_relid and not a.attisdropped and (a.attname, a.atttypid) in ({{watched}})) < {{watched_count}} then
        if {{notify}} then
            perform pg_notify({{channel}} || ':' || trunc(random() * 64), 'i' || {{source}});
        end if;
        return null;
    end if;
    if tg_op = 'INSERT' then
        insert into @inbox (source, source_id)
        select {{source}}, u.{{id}}::text from came u where {{said:u}} in ('queued', 'running', 'paused');
    elsif tg_op = 'UPDATE' then
        insert into @inbox (source, source_id)
        select {{source}}, u.{{id}}::text
          from came u
          left join (select o.source_id, o.state, o.run_at, o.priority, o.worker, o.fence from @jobs o
                      where o.source = {{source}} and o.source_id = any(array(select c.{{id}}::text from came c))) j
            on j.source_id = u.{{id}}::text
         where {{disagrees}} or blind;
    elsif tg_op = 'DELETE' then
        insert into @inbox (source, source_id)
        select {{source}}, j.source_id from @jobs j
         where j.source = {{source}} and j.source_id = any(array(select o.{{id}}::text from went o))
           and (j.state in ('queued', 'running', 'paused') or blind);
    else
        insert into @inbox (source, source_id) values ({{source}}, '*');
    end if;
    if {{notify}} and found
       and not exists (select 1 from @sources s where s.name = {{source}} and s.looks_until > clock_timestamp()) then
        perform pg_notify({{channel}} || ':' || trunc(random() * 64), 'i' || {{source}});
    end if;
    return null;
end {{quote}}
