-- A finished job gives its key up to a new one: at once if it failed or was cancelled, else when its result is too
-- old to be handed out again.
update @jobs set holds_key = null
 where task = :task and key = :key and holds_key
   and (state in ('failed', 'cancelled')
        or (state = 'succeeded' and finished_at <= @after(minus_reuse)))
