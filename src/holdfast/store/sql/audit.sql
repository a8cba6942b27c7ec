-- What operators did: one row a call.

-- name: add_audit
insert into @audit (at, by, verb, what, job_id, parameters, reason, changed, asked, refused, ended_at)
values (@clock, :by, :verb, :what, :job_id, :parameters, :reason, :changed, :asked, :refused,
        case when :ended then @clock end)
returning id

-- name: count_audit
-- A part of a call is done. Only while it is under way: what has ended stays as it was.
update @audit
   set changed = changed + :changed, asked = asked + :asked, refused = refused + :refused
 where id = :id and ended_at is null

-- name: end_audit
update @audit set ended_at = @clock where id = :id and ended_at is null

-- name: audit
select id, at, by, verb, what, parameters, reason, changed, asked, refused, ended_at
  from @audit
 where id < :before
 order by id desc
 limit :limit

-- name: audit_of_job
select id, at, by, verb, what, parameters, reason, changed, asked, refused, ended_at
  from @audit
 where job_id = :job_id
 order by id desc
 limit :limit

-- name: purge_audit
-- Looks at the oldest rows only: ids grow with time.
delete from @audit
 where id in (select id from (select id, at from @audit order by id limit :limit) oldest
               where oldest.at < @after(minus_kept))
returning id
