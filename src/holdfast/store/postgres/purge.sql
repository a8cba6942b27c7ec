-- Retention: one bounded step along the primary key. Forgets what finished long ago; tells how far it came and
-- whether what lies ahead is all too young to have finished long ago.
with step as materialized (
    select id, created_at from @jobs where id > :after_id order by id limit :limit
),
old as materialized (
    select j.id from @jobs j
     where j.id = any(array(select id from step))
       and ((j.state in ('succeeded', 'cancelled') and j.finished_at < @after(minus_finished))
            or (j.state = 'failed' and j.finished_at < @after(minus_failed)))
     for update of j skip locked
),
gone as (
    delete from @jobs where id = any(array(select id from old)) returning id
),
history as (
    delete from @attempts where job_id = any(array(select id from old))
),
steps as (
    delete from @steps where job_id = any(array(select id from old))
),
listed as (
    delete from @pending where job_id = any(array(select id from old))
)
select (select count(*) from gone) as deleted, (select max(id) from step) as reached,
       (select max(created_at) from step) > @after(minus_youngest) as young
