-- All that decides whether a job is claimed, at one moment: its row, its lease, the pauses that concern it, and the workers,
-- one row each (one row without a worker if there is none, one without a job if there is no such job). Those that could
-- run it are counted through by task: what they hold is read from their leases, so the work is bounded by what is leased.
select @now as now, n.newest, j.id, j.queue, j.task, j.state, j.attempt, j.max_attempts, j.priority,
       coalesce(j.ready_at, j.run_at) as due_at, j.run_at, j.source, j.source_id, j.owed, s.suspended as table_suspended,
       j.suspicion, j.expires_at, j.finished_at, j.cancel_requested, j.pause_requested, j.asked_at, j.asked_by, j.asked_why,
       j.error_code, j.error_message, j.held_by, j.started_at,
       coalesce(l.worker, j.worker) as holder, l.expires_at as lease_ends_at,
       q.created_at as queue_paused_at, q.by as queue_paused_by, q.reason as queue_paused_why,
       q.until as queue_paused_until,
       t.created_at as task_paused_at, t.by as task_paused_by, t.reason as task_paused_why,
       t.until as task_paused_until,
       w.id as worker_id, w.queues, w.tasks, w.slots, w.lease, w.grace, w.timeouts, w.runners, w.seen_at,
       case when (w.queues is null or j.queue = any(w.queues)) and j.task = any(w.tasks)
            then (select coalesce(json_object_agg(task, jobs), '{}')::text
                    from (select r.task, count(*) as jobs from @leases h cross join unnest(h.job_ids) held (id)
                            join @jobs r on r.id = held.id and r.fence = h.fence and r.state = 'running'
                           where h.worker = w.id
                           group by r.task) by_task) end as running
  from (select max(id) as newest from @jobs) n
  left join @jobs j on j.id = :id
  left join @leases l on l.fence = j.fence and j.state = 'running'
  left join @sources s on s.name = j.source
  left join @pauses q on q.kind = 'queue' and q.name = j.queue and @stands(q)
  left join @pauses t on t.kind = 'task' and t.name = j.task and @stands(t)
  left join @workers w on true
 order by w.started_at, w.id
