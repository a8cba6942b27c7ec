-- What is paused; of a filter also how many jobs it has set aside, counted up to :most (as barred_ids finds them).
select p.kind, p.name, p.by, p.reason, p.until, p.created_at,
       case when p.kind = 'filter'
            then (select count(*) from (select 1 from @jobs j where j.barred_by >= p.name and j.barred_by <= p.name
                                         order by j.barred_by, j.id limit :most) b) end as jobs
  from @pauses p
 where p.until is null or p.until > @now
 order by p.kind, p.name
