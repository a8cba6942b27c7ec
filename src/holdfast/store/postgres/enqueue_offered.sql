-- A new job, due now, for a worker that has offered to take it (offer.sql): it runs as soon as it exists, under a lease
-- of that worker's, who is told all of it when this commits. The offer counts if its worker was seen of late and the
-- session lives that hears of it, which holds the lock that we try for; one whose session is gone is swept up. Where there
-- is no offer, or any pause stands, the job is queued as by `enqueue`, and all workers are told of its lane.
with offer as materialized (
    select o.fence, w.lease
      from @offers o join @workers w on w.id = o.worker
     where o.queue = :queue and o.task = :task and w.seen_at > @now - 1.5 * make_interval(secs => w.lease)
       and not exists (select 1 from @pauses p where p.kind <> 'cron' and (p.until is null or p.until > @now))
     limit 1 for update of o skip locked
),
swept as (
    delete from @offers where fence = (select fence from offer)
    returning fence, worker, ear, not pg_try_advisory_xact_lock_shared(hashtextextended(ear, 0)) as heard
),
taken as (
    select fence, worker, ear, (select lease from offer) as lease from swept where heard
),
made as (
    insert into @jobs (queue, task, args, priority, max_attempts, created_at, run_at, ready_at, expires_at,
                       correlation_id, tags, state, attempt, fence, worker, started_at)
    select :queue, :task, :args::json, :priority, :max_attempts, @clock, @clock, case when t.fence is null then @clock end,
           @after(expires_in), :correlation_id, :tags::text[], case when t.fence is null then 'queued' else 'running' end,
           case when t.fence is null then 0 else 1 end, t.fence, t.worker, case when t.fence is not null then @clock end
      from (values (1)) one left join taken t on true
    returning id, queue, task, args, priority, max_attempts, correlation_id, started_at
),
lease as (
    insert into @leases (fence, worker, expires_at, held, job_ids)
    select t.fence, t.worker, @clock + make_interval(secs => t.lease), 1, array[m.id] from made m cross join taken t
)
select m.id, pg_notify(
           case when t.fence is null then :channel else 'holdfast:ear:' || t.ear end,
           case when t.fence is null then :wakeup
                else 'o' || json_build_array(extract(epoch from m.started_at)::float8, t.fence, m.id, m.queue, m.task, m.priority,
                                             m.max_attempts, m.correlation_id) || chr(10) || m.args end)
  from made m left join taken t on true
