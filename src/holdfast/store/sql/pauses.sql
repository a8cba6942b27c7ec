-- What is paused; of a filter also how many jobs it holds, counted up to :most (found as in held_jobs.sql).
select p.kind, p.name, p.by, p.reason, p.until, p.created_at,
       case when p.kind = 'filter'
            then (select count(*) from (select 1 from @jobs j
                                         where j.held_by >= 'pause:' || p.name and j.held_by <= 'pause:' || p.name
                                         order by j.held_by, j.id limit :most) held) end as jobs
  from @pauses p
 where @stands(p)
 order by p.kind, p.name
