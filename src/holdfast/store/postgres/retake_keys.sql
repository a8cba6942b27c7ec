-- Jobs that are to be retried take their keys back, if nobody has them: of equal ones the newest. In the order of bulk
-- enqueues, as they were locked by retry: who takes a key waits for another who is taking it.
with newest as (
    select max(id) as id from @jobs
     where id @any(ids) and state in ('failed', 'cancelled') and key is not null and holds_key is null
     group by task, key
),
picked as materialized (
    select j.id from newest n join @jobs j on j.id = n.id
     where j.state in ('failed', 'cancelled') and j.holds_key is null
       and not exists (select 1 from @jobs held where held.task = j.task and held.key = j.key and held.holds_key)
     order by j.task, j.key for update of j
)
update @jobs j set holds_key = true from picked
 where j.id = picked.id and j.state in ('failed', 'cancelled')
