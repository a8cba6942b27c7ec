-- Workers that have registered.

-- name: register
insert into @workers (id, name, host, pid, queues, tasks, crons, slots, lease, grace, timeouts, started_at, seen_at)
values (:id, :name, :host, :pid, :queues, :tasks, :crons, :slots, :lease, :grace, :timeouts, @clock, @clock)

-- name: unregister
delete from @workers where id = :id

-- name: request_stop
-- Asked twice, the first time counts.
update @workers set stop_requested_at = coalesce(stop_requested_at, @clock) where id = :id
returning id

-- name: stop_requested
select 1 as requested from @workers where id = :id and stop_requested_at is not null

-- name: workers
select id, name, host, pid, queues, tasks, crons, slots, lease, started_at, seen_at, stop_requested_at
  from @workers
 order by started_at, id

-- name: forget_workers
-- Workers that were last seen long ago and hold no lease. Leases don't depend on these rows.
delete from @workers
 where seen_at < @after(minus_age)
   and not exists (select 1 from @leases l where l.worker = @workers.id)
