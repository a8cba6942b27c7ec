-- Given back, the attempt not charged: at shutdown, by Snooze, because it could not start soon, or because a pause by
-- filter means it: then it is held, if that pause still stands. To paused or cancelled if that was asked meanwhile. What
-- has begun expires no more. `queue` is told only if the job may be claimed from there again.
with hold (held_by) as (
    select 'pause:' || p.name from @pauses p
     where p.kind = 'filter' and 'pause:' || p.name = cast(:held_by as text) and @stands(p)
)
update @jobs
   set state = case when cancel_requested then 'cancelled' when pause_requested then 'paused' else 'queued' end,
       run_at = case when :delay > 0.0 then @after(delay) else run_at end,
       held_by = case when not cancel_requested and not pause_requested then (select held_by from hold) end,
       ready_at = case when not cancel_requested and not pause_requested and not exists (select 1 from hold)
                       then case when :delay > 0.0 then @after(delay) else run_at end end,
       finished_at = case when cancel_requested then @clock end,
       error_fingerprint = case when not cancel_requested then error_fingerprint end,
       pause_requested = false, cancel_requested = false,
       expires_at = case when cast(:outcome as text) is null then expires_at end,
       fence = null, attempt = attempt - 1,
       error_code = case when cancel_requested then 'CANCELLED' else error_code end,
       error_message = case when cancel_requested then coalesce(asked_why, 'cancelled on request') else error_message end
 where id = :id and state = 'running' and fence = :fence
returning id, life, attempt + 1 as number, worker, started_at, state,
          case when ready_at is not null then queue end as queue, awaited,
          cast(null as text) as error_code, cast(null as text) as error_message
