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

-- name: add_audit_jobs
insert into @audit_jobs (audit_id, first_id, last_id, job_ids) values (:id, :first, :last, :job_ids)

-- name: audit
select a.id, a.at, a.by, a.verb, a.what, a.parameters, a.reason, a.changed, a.asked, a.refused, a.ended_at
  from @audit a
 where @recorded(a)
 order by a.id desc
 limit :limit

-- name: audit_of_job
select a.id, a.at, a.by, a.verb, a.what, a.parameters, a.reason, a.changed, a.asked, a.refused, a.ended_at
  from @audit a
  join (select id from @audit where job_id = :job_id
        union
        select audit_id from @audit_jobs
         where first_id <= :job_id and last_id >= :job_id and @lists_job) of_job on of_job.id = a.id
 where @recorded(a)
 order by a.id desc
 limit :limit

-- name: purge_audit
-- Looks at the oldest rows only: ids grow with time.
delete from @audit
 where id in (select id from (select id, at from @audit order by id limit :limit) oldest
               where oldest.at < @after(minus_kept))
returning id

-- name: purge_audit_jobs
delete from @audit_jobs where audit_id @any(ids)
