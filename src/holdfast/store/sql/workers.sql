-- Workers that have registered.

-- name: register
insert into @workers (id, name, host, pid, queues, tasks, crons, slots, lease, grace, timeouts, runners, version,
                      started_at, seen_at)
values (:id, :name, :host, :pid, :queues, :tasks, :crons, :slots, :lease, :grace, :timeouts, :runners, :version, @clock, @clock)

-- name: unregister
delete from @workers where id = :id

-- name: request_stop
-- Asked twice, the first time counts.
update @workers
   set stop_requested_by = case when stop_requested_at is null then :by else stop_requested_by end,
       stop_reason = case when stop_requested_at is null then :reason else stop_reason end,
       stop_requested_at = coalesce(stop_requested_at, @clock)
 where id = :id
returning queues

-- name: stop_requested
select stop_requested_by as by, stop_reason as reason from @workers where id = :id and stop_requested_at is not null

-- name: workers
select w.id, w.name, w.host, w.pid, w.queues, w.tasks, w.crons, w.slots, w.lease, w.started_at, w.seen_at, w.polling,
       w.version, w.memory, w.stop_requested_at, w.stop_requested_by, w.stop_reason, coalesce(l.leases, 0) as leases,
       l.lease_ends_at
  from @workers w
  left join (select worker, count(*) as leases, min(expires_at) as lease_ends_at from @leases group by worker) l
    on l.worker = w.id
 order by w.started_at, w.id

-- name: forget_workers
-- Workers that were last seen long ago and hold no lease. Leases don't depend on these rows.
delete from @workers
 where seen_at < @after(minus_age)
   and not exists (select 1 from @leases l where l.worker = @workers.id)
