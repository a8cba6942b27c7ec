-- Jobs of the rows of adopted tables.

-- name: job_of_row
-- The job of a row; `fresh`: it succeeded not longer ago than a submission wants to reuse it.
select id, state, (state = 'succeeded' and finished_at > @after(minus_reuse)) as fresh
  from @jobs where source = :source and source_id = :source_id

-- name: remember_row
-- A job for a row that has finished, and has none: it is returned to whoever submits the row again.
insert into @jobs (queue, task, args, state, ready_at, finished_at, failed_at, source, source_id)
values (:queue, :source, '{}', :state, null, @clock, case when :failed then @clock end, :source, :source_id)
on conflict (source, source_id) where source is not null do nothing
