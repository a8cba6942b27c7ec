-- Bring rows and jobs in step: those that the inbox names, or this `single` one. Rows and jobs are locked, and left for later
-- if others have them. If Holdfast holds the job, or owes its outcome to the row, the job decides; otherwise the row does.
create or replace function @settle_{{suffix}}(
    most integer, now timestamptz, single text, out settled integer, out waiting integer, out due integer, out asked boolean
) {{as_owner}} as {{quote}}
declare
    e record;
    r record;      -- the row
    j @jobs;       -- its job
    said text;     -- the state that the row's word means
    there boolean;
    taken boolean; -- the row names somebody else who works it
    why text;
    lease uuid;
begin
    settled := 0; waiting := 0; due := 0; asked := false;
    begin
        lock table {{tables}} in row exclusive mode nowait;
    exception when others then  -- somebody alters it, or has it locked: nobody of ours waits
        if sqlstate like '40%' then
            raise;
        end if;
        waiting := 1;
        return;
    end;
    perform set_config('holdfast.settling', 'on', true);

    -- What waits and has no job, all at once.
    begin
        with entry as materialized (
            select i.id, i.source_id from @inbox i
             where single is null and i.source = {{source}} and i.source_id <> '*' order by i.id limit most for update skip locked
        ),
        fresh as materialized (
            select u.{{id}}::text as source_id, {{row:u}} from {{table}} u
             where u.{{id}} = any(array(select entry.source_id::{{id_type}} from entry)) and {{said:u}} = 'queued'
               and u.{{id}}::text not in (select o.source_id from @jobs o
                       where o.source = {{source}} and o.source_id = any(array(select entry.source_id from entry)))
               for no key update skip locked
        ),
        made as (
            insert into @jobs (queue, task, created_at, args, priority, max_attempts, attempt, run_at, ready_at, key, source, source_id)
            select {{queue}}, {{source}}, now, f.args, f.priority, f.max_attempts, f.attempt, t.due, t.due, f.key, {{source}}, f.source_id
              from fresh f cross join lateral (select coalesce(f.due, case when f.born <= now then f.born end, now) as due) t
            on conflict (source, source_id) where source is not null do nothing
            returning source_id, run_at
        ),
        gone as (
            delete from @inbox i where i.id = any(array(
                select entry.id from entry where entry.source_id in (select made.source_id from made))) returning i.id
        )
        select (select count(*) from gone), (select count(*) from made where run_at <= now) into settled, due;
    exception when others then  -- one of them is to blame, and found below
        if sqlstate like '40%' then
            raise;
        end if;
    end;

    -- The rest one by one.
    for e in
        select x.source_id, array_agg(x.id) as ids from (
            select i.id, i.source_id from @inbox i
             where i.source = {{source}} and (single is null or i.source_id = single)
             order by i.id limit greatest(most - settled, 0) for update skip locked) x
         group by x.source_id order by min(x.id)
    loop
        delete from @inbox i where i.id = any(e.ids);
        settled := settled + 1;
        if e.source_id = '*' then
            insert into @inbox (source, source_id)
            select {{source}}, o.source_id from @jobs o where o.source = {{source}} and o.state in ('queued', 'running', 'paused');
            continue;
        end if;
        begin
            select {{row:u}} into r from {{table}} u where u.{{id}} = e.source_id::{{id_type}} for no key update skip locked;
            there := found;
            if not there and exists (select 1 from {{table}} u where u.{{id}} = e.source_id::{{id_type}}) then
                raise lock_not_available;
            end if;
            select * into j from @jobs o where o.source = {{source}} and o.source_id = e.source_id for no key update skip locked;
            if not found and exists (select 1 from @jobs o where o.source = {{source}} and o.source_id = e.source_id) then
                raise lock_not_available;
            end if;
            said := r.said;
            taken := coalesce(there and said = 'running' and (j.owed or j.state = 'running') and {{taken}}, false);

            if j.id is null then
                if not there or said is null or said not in ('queued', 'running', 'paused') then
                    continue;
                end if;
                insert into @jobs (queue, task, created_at, args, priority, max_attempts, attempt, run_at, ready_at, key, source, source_id)
                select {{queue}}, {{source}}, now, r.args, r.priority, r.max_attempts, r.attempt, t.due, t.due, r.key, {{source}}, e.source_id
                  from (select coalesce(r.due, case when r.born <= now then r.born end, now) as due) t
                returning * into j;
                if said = 'queued' then
                    due := due + (j.run_at <= now)::integer;
                    continue;
                end if;
            elsif there and said is not distinct from {{shown:j.state}} and not j.owed and not taken then  -- in step
                if j.state in ('queued', 'paused') and ({{drifted}}) then
                    update @jobs set priority = {{kept_priority}}, run_at = t.due,
                           attempt = case when state = 'queued' then {{kept_attempt}} else attempt end,
                           ready_at = case when ready_at is not null then t.due end
                      from (select {{kept_due}} as due) t where id = j.id;
                    due := due + (j.state = 'queued')::integer;
                elsif j.state = 'running' and j.worker like 'foreign:%' then
                    update @leases set expires_at = greatest(expires_at, r.lease_ends) where fence = j.fence;
                end if;
                continue;
            end if;

            why := case when not there then 'its row was deleted' else 'its row says ' || quote_literal(r.word) end;
            if j.state = 'running' and j.worker not like 'foreign:%' and not taken then  -- one of ours holds it
                if not there or said in ('cancelled', 'paused') then  -- a request
                    if not j.cancel_requested and (not j.pause_requested or not there or said = 'cancelled') then
                        update @jobs set cancel_requested = not there or said = 'cancelled',
                               pause_requested = there and said = 'paused', asked_at = now, asked_by = {{source}}, asked_why = why
                         where id = j.id;
                        asked := true;
                    end if;
                else
                    if {{apply}} is not null then
                        raise lock_not_available;
                    end if;
                    update @jobs set owed = false where id = j.id and owed;
                    if j.asked_by = {{source}} and (j.cancel_requested or j.pause_requested) then  -- it is taken back
                        update @jobs set cancel_requested = false, pause_requested = false, asked_at = null, asked_by = null,
                               asked_why = null
                         where id = j.id;
                    end if;
                end if;
                continue;
            elsif there and j.owed and not taken
                  -- What it became is still to be told, unless it ended as it did before the request was seen.
                  and not (j.state in ('queued', 'failed', 'paused') and said = 'cancelled')
                  and not (j.state = 'queued' and said = 'paused')
                  -- It obeyed a request of the row, which had been taken back by then.
                  and not (j.state in ('paused', 'cancelled') and said = 'queued' and j.asked_by = {{source}}) then
                if {{apply}} is not null then
                    raise lock_not_available;
                end if;
                update @jobs set owed = false where id = j.id;
                continue;
            end if;

            -- Nobody of ours holds it: the row decides.
            if taken and j.state = 'running' then
                insert into @attempts (job_id, fence, life, number, worker, outcome, started_at, ended_at, error_message)
                values (j.id, j.fence, j.life, j.attempt, j.worker, 'lost', j.started_at, now, 'its row was taken over by ' || r.holder)
                on conflict do nothing;
            elsif j.state = 'running' then
                delete from @leases where fence = j.fence;
            end if;
            if there and j.state = 'paused' and (said = 'queued' and j.owed or said = 'running' and r.holder is null) then
                said := 'resumed';  -- a paused job has no holder: who writes "running" wants it to go on
            end if;
            if there and said in ('queued', 'resumed') then
                update @jobs set state = 'queued', owed = false, args = r.args, priority = r.priority, max_attempts = r.max_attempts,
                       attempt = case when j.state = 'paused' and j.attempt < r.max_attempts then j.attempt else r.attempt end,
                       run_at = t.due, ready_at = t.due, held_by = null, expires_at = null, crashes = 0, suspicion = 0,
                       life = life + (j.state in ('succeeded', 'failed', 'cancelled'))::integer,
                       fence = null, worker = null, started_at = null, finished_at = null, failed_at = null,
                       error_code = null, error_message = null, error_fingerprint = null,
                       pause_requested = false, cancel_requested = false, asked_at = null, asked_by = null, asked_why = null
                  from (select coalesce(r.due, now) as due) t where id = j.id;
                due := due + 1;
                if said = 'resumed' and {{apply}} is not null then
                    raise lock_not_available;
                end if;
            elsif there and said = 'running' then
                lease := gen_random_uuid();
                update @jobs set state = 'running', owed = false, fence = lease, worker = 'foreign:' || {{source}} || ':' || e.source_id,
                       started_at = now, attempt = r.held_attempt, max_attempts = r.max_attempts,
                       life = life + (j.state in ('succeeded', 'failed', 'cancelled'))::integer,
                       ready_at = null, held_by = null, expires_at = null, finished_at = null, failed_at = null,
                       pause_requested = false, cancel_requested = false
                 where id = j.id;
                insert into @leases (fence, worker, expires_at, held, job_ids)
                values (lease, 'foreign:' || {{source}} || ':' || e.source_id,
                        coalesce(r.lease_ends, now + interval '{{lease}} seconds'), 1, array[j.id]);
            elsif there and said = 'paused' then
                update @jobs set state = 'paused', owed = false, ready_at = null, held_by = null, fence = null, worker = null,
                       attempt = least(attempt, max_attempts - 1), finished_at = null, failed_at = null,
                       life = life + (j.state in ('succeeded', 'failed', 'cancelled'))::integer,
                       asked_at = now, asked_by = {{source}}, asked_why = why
                 where id = j.id;
                if j.owed and {{apply}} is not null then  -- the row still names who worked it
                    raise lock_not_available;
                end if;
            elsif (there and said in ('succeeded', 'failed')) or j.state not in ('succeeded', 'failed', 'cancelled') or said = 'cancelled' then
                update @jobs set state = case when there then coalesce(said, 'cancelled') else 'cancelled' end, owed = false,
                       ready_at = null, held_by = null, finished_at = coalesce(finished_at, now),
                       failed_at = case when said = 'failed' then now end, error_fingerprint = null,
                       pause_requested = false, cancel_requested = false,
                       error_code = case when said = 'succeeded' then null when said = 'failed' then coalesce(r.error_code, 'FAILED')
                                         else 'CANCELLED' end,
                       error_message = case when said = 'succeeded' then null when said = 'failed' then coalesce(r.error_message, why)
                                            else why end
                 where id = j.id;
                if j.owed and there and said = 'cancelled' and {{apply}} is not null then
                    raise lock_not_available;
                end if;
            else
                update @jobs set owed = false where id = j.id and owed;  -- it finished, and the row is no longer ours
            end if;
        exception when others then  -- locked, or the table refuses it: later
            if sqlstate like '40%' then
                raise;
            end if;
            insert into @inbox (source, source_id) values ({{source}}, e.source_id);
            settled := settled - 1; waiting := waiting + 1;
        end;
    end loop;
    perform set_config('holdfast.settling', '', true);
    if single is null and settled + waiting = 0 and exists (select 1 from @inbox i where i.source = {{source}}) then
        waiting := 1;  -- another worker is at it
    end if;
end {{quote}}
