-- Pauses of queues, tasks, crons and of the jobs that a filter means.

-- name: add_pause
-- Pause a queue, a task, a cron or what a filter means, with who asked, why and until when.
insert into @pauses (kind, name, by, reason, until, created_at)
values (:kind, :name, :by, :reason, coalesce(@after(delay), :until), @clock)
on conflict (kind, name) do update
   set by = excluded.by, reason = excluded.reason, until = excluded.until, created_at = excluded.created_at
returning kind, name, by, reason, until, created_at

-- name: drop_pause
delete from @pauses where kind = :kind and name = :name returning name

-- name: pauses
-- What is paused; of a filter also how many jobs it holds, counted up to :most (found as in held_jobs.sql).
select p.kind, p.name, p.by, p.reason, p.until, p.created_at,
       case when p.kind = 'filter'
            then (select count(*) from (select 1 from @jobs j
                                         where j.held_by >= 'pause:' || p.name and j.held_by <= 'pause:' || p.name
                                         order by j.held_by, j.id limit :most) held) end as jobs
  from @pauses p
 where @stands(p)
 order by p.kind, p.name

-- name: change_filters
update @meta set filter_version = :version
