-- In a claim where pauses by filter stand: what was picked and is meant by one is set aside (as in bar.sql), not taken.
barred as materialized (
    select b.id, b.name
      from (select j.id, (select s.name from switch s where @meant order by s.name limit 1) as name from @jobs j
             where j.id = any(array(select id from picked))) b
     where b.name is not null
),
aside as (
    update @jobs j
       set barred_by = (select b.name from barred b where b.id = j.id),
           ready_at = null
     where j.id = any(array(select id from barred)) and j.state = 'queued'
),
