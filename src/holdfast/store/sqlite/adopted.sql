-- Templates of what keeps rows of an adopted table and their jobs in step; adopted_sql.py fills them in for one table.
-- Nothing here runs as it stands.
--
-- FOLLOW: the row decides. Each statement serves twice: in triggers in the file, which foreign connections run (so they
-- use nothing of ours, and no SQL that old libraries lack), where the row is `new`; and in the sweep, over rows by their
-- ids. The tokens that differ:
--   @from, @and_from   nothing                     from "audits" as r
--   @these             its id is new's             its id is one of :ids
--   @id @said …        of new                      of r
-- What others mean by the row's word is @said, a state or null. A job is held if it runs under one of our workers:
-- then its row can only ask. If it is owed, its row waits for us, and says nothing.

-- name: follow_create
insert into @jobs (source, source_id, queue, task, key, args, state, run_at, ready_at, priority, attempt, max_attempts)
select @source, @id, @queue, @source, @key, @args, case @said when 'paused' then 'paused' else 'queued' end,
       @first_due, case when @said <> 'paused' then @first_due end, @priority, @attempts, @maximum
  @from
 where @these and @said in ('queued', 'running', 'paused')
   and not exists (select 1 from @jobs j where j.source = @source and j.source_id = @id)

-- name: follow_request
-- Ours holds it, and its row says paused or cancelled.
update @jobs
   set cancel_requested = @jobs.cancel_requested or @said = 'cancelled',
       pause_requested = @jobs.pause_requested or @said = 'paused',
       asked_at = @clock, asked_by = @source, asked_why = @why
  @from
 where @is and @held and @said in ('cancelled', 'paused')
   and not (case @said when 'cancelled' then @jobs.cancel_requested else @jobs.pause_requested end)

-- name: follow_withdraw
-- Ours holds it, and its row no longer says so.
update @jobs
   set cancel_requested = 0, pause_requested = 0, asked_at = null, asked_by = null, asked_why = null
  @from
 where @is and @held and @jobs.asked_by = @source and coalesce(@said, '') not in ('cancelled', 'paused')
   and (@jobs.cancel_requested or @jobs.pause_requested)

-- name: follow_overrule
-- Ours holds it: whatever else its row says is overruled. Who wrote that may have cleared the claim, too.
update @table set @status = @running@claim
 where @these_rows and coalesce(@row_said, '') not in ('running', 'cancelled', 'paused')
   and exists (select 1 from @jobs where source = @source and source_id = @row_id and state = 'running'
                  and worker is not @row_foreign)

-- name: follow_lease
-- The lease of a foreign holder that let go.
delete from @leases
 where fence in (select j.fence from @jobs j @and_from
                  where @these and j.source = @source and j.source_id = @id and j.state = 'running'
                    and j.worker = @foreign and not j.owed and coalesce(@said, '') <> 'running')

-- name: follow_queued
update @jobs
   set state = 'queued', args = @args, run_at = @due, ready_at = @due, held_by = null, priority = @priority,
       max_attempts = @maximum, attempt = @attempts_again, life = @life, crashes = 0, suspicion = 0,
       fence = null, worker = null, started_at = null, finished_at = null, failed_at = null, expires_at = null,
       error_code = null, error_message = null, error_fingerprint = null,
       cancel_requested = 0, pause_requested = 0, asked_at = null, asked_by = null, asked_why = null
  @from
 where @is and @free and @said = 'queued' and not @agrees

-- name: follow_running
-- Somebody else works it. The lease is by the table's own rule, so that the row is recovered if its worker dies.
update @jobs
   set state = 'running', worker = @foreign, fence = lower(hex(randomblob(16))), started_at = @begun,
       attempt = @attempts_begun, max_attempts = @maximum, life = @life, ready_at = null, held_by = null,
       finished_at = null, failed_at = null, expires_at = null
  @from
 where @is and @free and @said = 'running' and not @in_step

-- name: follow_foreign_lease
insert into @leases (fence, worker, expires_at, held, job_ids)
select j.fence, j.worker, @lease_end, 1, '[' || j.id || ']'
  from @jobs j @and_from
 where @these and @said = 'running' and j.source = @source and j.source_id = @id and j.state = 'running'
   and j.worker = @foreign and not exists (select 1 from @leases l where l.fence = j.fence)

-- name: follow_paused
update @jobs
   set state = 'paused', attempt = min(@attempts_again, @maximum - 1), max_attempts = @maximum, life = @life,
       ready_at = null, held_by = null, fence = null, worker = null, finished_at = null, failed_at = null,
       asked_at = @clock, asked_by = @source, asked_why = @why
  @from
 where @is and @free and @said = 'paused' and not @agrees

-- name: follow_finished
-- It ended without us; or its word is none of ours any more, so that there is nothing left to do.
update @jobs
   set state = coalesce(@said, 'cancelled'), ready_at = null, held_by = null,
       finished_at = @finished, failed_at = case @said when 'failed' then @finished end,
       error_code = case coalesce(@said, 'cancelled') when 'succeeded' then null else @error_code end,
       error_message = case coalesce(@said, 'cancelled') when 'succeeded' then null else @error_message end,
       error_fingerprint = null, cancel_requested = 0, pause_requested = 0
  @from
 where @is and @free and not @agrees
   and (@said in ('succeeded', 'failed', 'cancelled')
        or (@said is null and @jobs.state in ('queued', 'running', 'paused')))

-- The triggers in the file.

-- name: trigger_insert
-- Almost always a row is new, and waits.
create trigger @name after insert on @table
when @said in ('queued', 'paused')
begin
@create
end

-- name: trigger_replace
-- REPLACE INTO inserts a row that may have a job; and a row may be inserted by who works it.
create trigger @name after insert on @table
when case (select @in_step and not (cancel_requested or pause_requested)
             from @jobs where source = @source and source_id = @id)
     when 1 then 0 when 0 then 1 else @said is 'running' end
begin
@follow
end

-- name: trigger_update
-- Almost always it was us who wrote, and the job agrees. It does not if the row names another worker than its job.
create trigger @name after update of @claimed on @table
when case (select @in_step and (asked_by is not @source or not (cancel_requested or pause_requested))
             from @jobs where source = @source and source_id = @id)
     when 1 then 0 when 0 then 1 else coalesce(@said in ('queued', 'running', 'paused'), 0) end
begin
@follow
end

-- name: trigger_delete
create trigger @name after delete on @table
begin
@gone
end

-- name: trigger_rekey
create trigger @name after update of @id_column on @table
when new.@id_column is not old.@id_column
begin
@gone
@follow
end

-- name: trigger_wait
-- Others change when, or how urgently, a waiting row is due.
create trigger @name after update of @waits on @table
when @waits_changed
begin
update @jobs
   set run_at = @new_due, ready_at = case when ready_at is not null then @new_due end,
       priority = @new_priority, max_attempts = max(@new_maximum, attempt + 1)
 where @is and state in ('queued', 'paused') and not owed;
end

-- name: trigger_heartbeat
-- A foreign holder is alive.
create trigger @name after update of @lease_column on @table
begin
update @leases set expires_at = @lease_end
 where fence = (select fence from @jobs where source = @source and source_id = @id and state = 'running'
                   and worker = @foreign);
@counted
end

-- name: follow_counted
-- Others took it over from one of theirs that died: their table has counted that attempt.
update @jobs
   set attempt = @attempts_begun
  @from
 where @is and @said = 'running' and @jobs.state = 'running' and @jobs.worker = @foreign
   and @jobs.attempt < @attempts_begun

-- name: gone_request
update @jobs
   set cancel_requested = 1, asked_at = @clock, asked_by = @source, asked_why = 'its row was deleted'
  @from
 where @is and @held and not @jobs.cancel_requested

-- name: gone_lease
delete from @leases
 where fence in (select j.fence from @jobs j @and_from
                  where @these and j.source = @source and j.source_id = @id and j.state = 'running'
                    and j.worker = @foreign)

-- name: gone_cancel
update @jobs
   set state = 'cancelled', ready_at = null, held_by = null, finished_at = @clock, error_code = 'CANCELLED',
       error_message = 'its row was deleted', error_fingerprint = null, cancel_requested = 0, pause_requested = 0
  @from
 where @is and not @held and @jobs.state in ('queued', 'running', 'paused')

-- PROJECT: the job decides. TEMP triggers on our jobs, made by each of our connections: in the file they would break
-- rebuilds of the user's table, and a dropped one would stop all jobs.

-- name: project_state
-- Compare and set: a row that says neither what the job was nor what it is has been changed unseen. Then it is owed, and
-- decided by settle. A change that came from the row finds it in agreement, and does nothing.
create temp trigger @name after update of state on main.@jobs
when new.source = @source and (new.state <> old.state or new.attempt <> old.attempt)
begin
@misfits
update @table set @projection
 where @id_column = new.source_id
   and case when old.state = 'running' and old.worker is not @job_foreign
            then @row_was or @row_agrees
                 or ((old.cancel_requested or old.pause_requested) and @row_said in ('cancelled', 'paused'))
            else @row_was and not @row_agrees end
   and not @row_taken;
@second_table
update @jobs set owed = 1
 where id = new.id
   and exists (select 1 from @table where @id_column = new.source_id and not @row_agrees and not @row_taken);
end

-- name: project_wait
create temp trigger @name after update of @waits on main.@jobs
when new.source = @source and new.state = old.state and new.state in ('queued', 'paused')
 and @waits_changed
begin
update @table set @waiting where @id_column = new.source_id and @waits_differ;
end

-- name: project_counts
create temp trigger @name after update of pending, done, total on main.@jobs
when new.source = @source and new.state = old.state
 and (new.pending is not old.pending or new.done is not old.done or new.total is not old.total)
begin
@counts
end

-- name: project_owed
-- The table is left alone: what becomes of its jobs is written later. Who had them is kept, to tell others' claims from it.
create temp trigger @name after update of state, run_at, priority, pending, done, total on main.@jobs
when new.source = @source and not new.owed
begin
update @jobs set owed = 1, worker = coalesce(new.worker, old.worker), fence = coalesce(new.fence, old.fence)
 where id = new.id;
end

-- name: project_not_rescued
-- A foreign holder can't be heard while the table is left alone, so it is not taken for dead.
create temp trigger @name before update of state on main.@jobs
when new.source = @source and old.state = 'running' and old.worker = @job_foreign and new.state <> 'running'
begin
update @leases set expires_at = strftime('%Y-%m-%d %H:%M:%f000', 'now', @lease_seconds) where fence = old.fence;
select raise(ignore);
end

-- name: project_settle
-- The same at once for jobs that are owed.
update @table set @projection
  from @jobs j
 where j.id in (select value from json_each(:ids)) and @table.@id_column = j.source_id

-- name: source_taken
select j.id from @jobs j cross join @table r on r.@id_column = j.source_id
 where j.id in (select value from json_each(:ids)) and @taken

-- What the store asks of one table.

-- name: source_unready
-- Those of the jobs to be claimed whose rows don't say that they wait: something was missed. The plus: never by way of all
-- jobs of the table.
select j.id from @jobs j
 where j.id in (select value from json_each(:ids)) and +j.source = @source
   and not exists (select 1 from @table r where r.@id_column = j.source_id and @said = 'queued')

-- name: source_args
-- Arguments are the row's at the claim.
update @jobs set args = latest.args
  from (select j.id, @args as args
          from @jobs j cross join @table r on r.@id_column = j.source_id
         where j.id in (select value from json_each(:ids)) and +j.source = @source) latest
 where @jobs.id = latest.id and @jobs.args <> latest.args

-- name: source_page
-- The next rows along the ids, and which of them no trigger told of.
select r.@id_column as id,
       coalesce((select not j.owed and not @agrees_j
                        and not (@held_j and @said in ('paused', 'cancelled') and (j.cancel_requested or j.pause_requested))
                   from @jobs j where j.source = @source and j.source_id = @id),
                @said in ('queued', 'running', 'paused'), 0) as stray
  from @table r
 where @beyond
 order by r.@id_column
 limit :most

-- name: source_orphans
-- Unfinished jobs whose rows are gone.
select j.source_id as id from @jobs j
 where j.source = @source and j.state in ('queued', 'running', 'paused') and not (@held_j and j.cancel_requested)
   and not exists (select 1 from @table r where r.@id_column = j.source_id)

-- name: source_missing
-- Those of these rows that are gone.
select value as id from json_each(:ids) where not exists (select 1 from @table r where r.@id_column = value)

-- name: source_beat
-- What our workers hold is alive.
update @table set @beating
 where @id_column in (select j.source_id
                        from @leases l cross join json_each(l.job_ids) held
                       cross join @jobs j on j.id = held.value and j.fence = l.fence and j.state = 'running'
                       where j.source = @source and j.worker is not @j_foreign and l.expires_at > :now)
   and @row_said = 'running'

-- name: source_hear
-- Foreign holders that are alive, if no trigger told of it.
update @leases
   set expires_at = heard.lease_end
  from (select j.fence, @lease_end as lease_end
          from @leases l
         cross join json_each(l.job_ids) held
         cross join @jobs j on j.id = held.value and j.fence = l.fence and j.state = 'running' and j.source = @source
         cross join @table r on r.@id_column = j.source_id
         where j.worker = @foreign) heard
 where @leases.fence = heard.fence and @leases.expires_at < heard.lease_end
