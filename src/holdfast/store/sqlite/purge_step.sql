-- Retention looks at one bounded step along the primary key.
select max(id) as reached, max(created_at) > @after(minus_youngest) as young
  from (select id, created_at from @jobs where id > :after_id order by id limit :limit)
