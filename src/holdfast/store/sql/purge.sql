-- Retention goes along the primary key, in bounded steps.

-- name: purge_step
-- How far one step reaches, and whether its newest job is too young to have finished long ago: then all later ones are.
select max(id) as reached, max(created_at) > @after(minus_youngest) as young
  from (select id, created_at from @jobs where id > :after_id order by id limit :limit) step
