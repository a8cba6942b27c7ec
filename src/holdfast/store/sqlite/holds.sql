-- name: ended_hold
-- What holds jobs, and of that, what has ended. A loose index scan: one probe a hold, however many jobs.
hold (held_by) as (
    select (select held_by from @jobs indexed by @jobs_held where held_by is not null order by held_by limit 1)
    union all
    select (select j.held_by from @jobs j indexed by @jobs_held
             where j.held_by is not null and j.held_by > hold.held_by order by j.held_by limit 1)
      from hold where hold.held_by is not null
),
ended_hold as (
    select held_by from hold
     where held_by is not null
       and not exists (select 1 from @pauses p
                        where p.kind = 'filter' and 'pause:' || p.name = hold.held_by and @stands(p))
)

-- name: held_jobs
-- Some of the jobs that this holds.
select id, queue, task, args from @jobs indexed by @jobs_held where held_by = :held_by order by id limit :limit

-- name: standing_filters
-- The pauses by filter in force, and the version of all of them, which a claim tells as well. One row at least.
select m.filter_version as version, p.name, (julianday(p.until) - julianday(@now)) * 86400.0 as ends_in
  from @meta m left join @pauses p on p.kind = 'filter' and @stands(p)
 order by p.name
