-- Delete what finished long ago, within one step.
delete from @jobs
 where id > :after_id and id <= :reached and not owed
   and ((state in ('succeeded', 'cancelled') and finished_at < @after(minus_finished))
        or (state = 'failed' and finished_at < @after(minus_failed)))
returning id
