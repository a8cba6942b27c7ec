-- For a claim: those of these jobs whose rows can be taken, and their arguments where the row has others by now. The rows are
-- locked and written here, before the jobs are claimed: a job whose row still said that it waits would be taken by others, too.
create or replace function @take_{{suffix}}(ids bigint[], by_fence uuid, by_worker text, clock timestamptz)
returns table (id bigint, args json) {{as_writer}} as {{quote}}
begin
    return query
    with n as materialized (
        select o.id, o.source_id::{{id_type}} as at, 'running'::text as state, o.attempt + 1 as attempt, by_worker as worker,
               by_fence as fence, o.run_at, o.priority, clock as started_at, null::timestamptz as finished_at, o.error_code,
               o.error_message, o.result, o.pending, o.done, o.total, clock as now, o.args::text as args, {{attempt_of:o}} as tried
          from @jobs o where o.id = any(ids)
    ),
    r as materialized (
        select u.{{id}} as at, {{args:u}} as args, {{attempt:u}} as attempt from {{table}} u
         where u.{{id}} = any(array(select n.at from n)) and {{said:u}} = 'queued' for no key update skip locked
    ),{{held_counts}}
    free as materialized (
        select n.id, n.at, case when r.args::text <> n.args then r.args end as args
          from n join r on r.at = n.at and r.attempt = n.tried where true{{free_counts}}
    ),
    written as (
        update {{table}} u set {{set}} from n where u.{{id}} = n.at and u.{{id}} = any(array(select f.at from free f))
        returning u.{{id}} as at
    ){{written_counts}}
    select f.id, f.args from free f join written w on w.at = f.at;
end {{quote}}
