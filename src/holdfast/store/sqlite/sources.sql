-- Adopted tables, and the jobs of their rows. (What is made for one table comes from adopted.sql.)

-- name: source_kept
-- Adopted, perhaps again: a walk that was cut short goes on where it was, if nothing has changed.
insert into @sources (name, mapping, swept_to) values (:name, :mapping, '')
on conflict (name) do update
   set mapping = excluded.mapping, suspended = 0, refused = null,
       swept_to = case when mapping = excluded.mapping then coalesce(swept_to, '') else '' end

-- name: source_suspended
update @sources set suspended = 1 where name = :name

-- name: source_resumed
update @sources set suspended = 0, refused = null, swept_to = '' where name = :name

-- name: source_swept
-- How far its rows were looked at; null: to the end.
update @sources set swept_to = :reached, swept_at = case when :reached is null then @clock else swept_at end
 where name = :name

-- name: source_forgotten
delete from @sources where name = :name

-- name: source_held
-- What workers of ours run of this table, and the jobs whose rows don't know yet what became of them.
select count(*) filter (where state = 'running' and worker is not 'foreign:' || source || ':' || source_id) as running,
       count(*) filter (where owed) as owed
  from @jobs where source = :name

-- name: source_unfinished
delete from @jobs where source = :name and state in ('queued', 'running', 'paused') returning id

-- name: source_leases
-- Those of foreign holders.
delete from @leases where substr(worker, 1, length('foreign:' || :name || ':')) = 'foreign:' || :name || ':'

-- name: source_owes_nothing
-- Its table is gone.
update @jobs set owed = 0 where source = :name and owed

-- name: source_owed
select id from @jobs indexed by @jobs_owed where source = :name and owed limit :most

-- name: source_unsettled
-- How many jobs are owed, up to a number; and when the first of them was last begun.
select count(*) as owed, min(since) as since
  from (select coalesce(finished_at, started_at, created_at) as since
          from @jobs indexed by @jobs_owed where source = :name and owed limit :most)

-- name: source_paid
update @jobs set owed = 0 where id in (select value from json_each(:ids))

-- name: source_rows
-- The rows of these jobs.
select source_id from @jobs where id in (select value from json_each(:ids))

-- name: rows_due_by_host
-- For tests that have a clock of their own: triggers in the file know the host's alone. What became due by that since the
-- test began is due.
update @jobs set run_at = @now, ready_at = @now
 where source is not null and state = 'queued' and ready_at > @now and ready_at between :since and :until
