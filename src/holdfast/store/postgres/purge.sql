-- Delete what finished long ago, within one step. A locked job is left for the next time, and one whose
-- outcome is still to be written to its row.
delete from @jobs
 where id = any(array(
           select id from @jobs
            where id > :after_id and id <= :reached and not owed
              and ((state in ('succeeded', 'cancelled') and finished_at < @after(minus_finished))
                   or (state = 'failed' and finished_at < @after(minus_failed)))
            order by id for update skip locked))
returning id
