-- By which pauses jobs are set aside, and whether these are still in force. A loose index scan: one probe a pause, however
-- many jobs.
with recursive pause (name) as (
    select (select barred_by from @jobs indexed by @jobs_barred where barred_by is not null order by barred_by limit 1)
    union all
    select (select j.barred_by from @jobs j indexed by @jobs_barred
             where j.barred_by is not null and j.barred_by > pause.name order by j.barred_by limit 1)
      from pause where pause.name is not null
)
select name, exists (select 1 from @pauses p where p.kind = 'filter' and p.name = pause.name
                                               and (p.until is null or p.until > @now)) as stands
  from pause where name is not null
