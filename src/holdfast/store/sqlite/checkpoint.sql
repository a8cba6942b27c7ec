-- Save progress under the lease. Says what people have asked meanwhile. No row back: the lease was lost.
update @jobs
   set checkpoint = :checkpoint, pending = :pending, done = coalesce(:done, done), progressed_at = @clock
 where id = :id and state = 'running' and fence = :fence
returning cancel_requested, pause_requested
