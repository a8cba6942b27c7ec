-- Write to the rows what their jobs are; `was`: what each was before. A row is written only if it still says what its job
-- was or is, unless `forced`: so nothing that others wrote meanwhile is lost. Nor is a row that others took over from the one
-- of `workers` and `fences` that had it. Returns the jobs whose rows were not written: locked, gone, or saying something else.
create or replace function @write_{{suffix}}(ids bigint[], was text[], workers text[], fences uuid[], forced boolean)
returns bigint[] {{as_writer}} as {{quote}}
declare
    owing bigint[];
begin
    lock table {{tables}} in row exclusive mode nowait;
    with n as materialized (
        select j.id, j.source_id::{{id_type}} as at, j.state::text as state, b.state as was, j.attempt, j.worker, j.fence,
               j.run_at, j.priority, j.started_at, j.finished_at, j.error_code, j.error_message, j.result,
               j.pending, j.done, j.total,
               coalesce(case when j.state <> 'running' then j.finished_at
                             when b.state = 'running' then j.progressed_at else j.started_at end, clock_timestamp()) as now
          from (select * from @jobs where id = any(ids)) j join unnest(ids, was) b (id, state) on b.id = j.id
    ),
    held as materialized (
        select u.{{id}} as at, {{said:u}} as said, {{holder:u}} as holder from {{table}} u
         where u.{{id}} = any(array(select n.at from n)) for no key update skip locked
    ),{{held_counts}}
    free as materialized (
        select n.id, n.at from n join held h on h.at = n.at
          left join unnest(ids, workers, fences) b (id, worker, fence) on b.id = n.id
         where (forced or (h.said in ({{shown:n.was}}, {{shown:n.state}})
                           and not (n.was = 'running' and h.said = 'running' and {{taken_meanwhile}}))){{free_counts}}
    ),
    written as (
        update {{table}} u set {{set}}
          from n where u.{{id}} = n.at and u.{{id}} = any(array(select f.at from free f))
    ){{written_counts}}
    select array_agg(n.id) from n where n.id not in (select f.id from free f) into owing;
    return owing;
end {{quote}}
