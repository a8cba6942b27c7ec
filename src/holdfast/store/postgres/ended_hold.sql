-- What holds jobs, and of that, what has ended. A loose index scan: one probe a hold, however many jobs.
hold (held_by) as (
    (select held_by from @jobs where held_by is not null order by held_by, id limit 1)
    union all
    select (select j.held_by from @jobs j where j.held_by > hold.held_by order by j.held_by, j.id limit 1)
      from hold where hold.held_by is not null
),
ended_hold as (
    select held_by from hold
     where held_by is not null
       and not exists (select 1 from @pauses p
                        where p.kind = 'filter' and 'pause:' || p.name = hold.held_by and @stands(p))
)
