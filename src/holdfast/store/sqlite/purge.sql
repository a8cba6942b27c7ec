-- Retention.

-- name: purge_step
-- Retention looks at one bounded step along the primary key.
select max(id) as reached, max(created_at) > @after(minus_youngest) as young
  from (select id, created_at from @jobs where id > :after_id order by id limit :limit)

-- name: purge
-- Forget what finished long ago, within one step.
delete from @jobs
 where id > :after_id and id <= :reached
   and ((state in ('succeeded', 'cancelled') and finished_at < @after(minus_finished))
        or (state = 'failed' and finished_at < @after(minus_failed)))
returning id
