-- What no trigger told: one bounded step along the table's ids, and after the last of them along its jobs, for rows that are gone.
create or replace function @sweep_{{suffix}}(after text, most integer, now timestamptz, out reached text, out strays integer)
{{as_owner}} set plan_cache_mode = force_custom_plan as {{quote}}
begin
    lock table {{table}} in row share mode nowait;
    if after like 'job:%' then
        with step as materialized (
            select o.source_id, o.state from @jobs o
             where o.source = {{source}} and o.source_id > substr(after, 5) order by o.source_id limit most
        ),
        strange as (
            insert into @inbox (source, source_id)
            select {{source}}, s.source_id from step s
             where s.state in ('queued', 'running', 'paused')
               and s.source_id not in (select u.{{id}}::text from {{table}} u
                       where u.{{id}} = any(array(select x.source_id::{{id_type}} from step x)))
            returning 1
        )
        select case when count(*) = most then 'job:' || max(step.source_id) end, (select count(*) from strange)
          from step into reached, strays;
        if reached is null then
            update @sources set swept_at = now, swept_to = null
             where name = any(array(select s.name from @sources s where s.name = {{source}} for update skip locked));
        end if;
        return;
    end if;
    with step as materialized (
        select {{watched_columns}} from {{table}} u where after is null or u.{{id}} > substr(after, 5)::{{id_type}}
         order by u.{{id}} limit most
    ),
    strange as (
        insert into @inbox (source, source_id)
        select {{source}}, u.{{id}}::text
          from step u
          left join (select o.source_id, o.state, o.run_at, o.priority, o.worker, o.fence, o.owed, o.cancel_requested or o.pause_requested as requested
                       from @jobs o
                      where o.source = {{source}} and o.source_id = any(array(select s.{{id}}::text from step s))) j
            on j.source_id = u.{{id}}::text
         where (j.owed or {{disagrees}}) and not (j.state is not null and j.state = 'running' and j.requested)
        returning 1
    )
    select case when (select count(*) from step) = most then
                'row:' || (select u.{{id}}::text from step u order by u.{{id}} desc limit 1) else 'job:' end,
           (select count(*) from strange) into reached, strays;
exception when others then  -- somebody alters it, or has it locked: this walk ends here
    if sqlstate like '40%' then
        raise;
    end if;
    reached := null;
    strays := 0;
end {{quote}}
