-- Take one job back from a worker that went silent. What becomes of it was decided from its row, which has been locked
-- since; state and fence are checked again all the same. No row back: its holder was faster.
update @jobs
   set state = cast(:state as text),
       run_at = case when :state = 'queued' then @clock else run_at end,
       ready_at = case when :state = 'queued' then @clock end,
       finished_at = case when :state in ('failed', 'cancelled') then @clock end,
       failed_at = case when :state = 'failed' then @clock end,
       error_fingerprint = case when :state <> 'cancelled' then :error_fingerprint end,
       pause_requested = false, cancel_requested = false,
       -- A finished job keeps its fence; one that goes on has no holder.
       fence = case when :state in ('failed', 'cancelled') then fence end,
       worker = case when :state in ('failed', 'cancelled') then worker end,
       expires_at = null,  -- it was started, as far as anyone knows
       attempt = :attempt, crashes = :crashes, suspicion = :suspicion,
       error_code = :error_code, error_message = :error_message
 where id = :id and state = 'running' and fence = :fence
returning id
