-- Jobs that are to be retried take their keys back, if nobody has them: of equal ones the newest.
update @jobs as j set holds_key = true
 where j.id in (select max(w.id) from @jobs w
               where w.id @any(ids) and w.state in ('failed', 'cancelled') and w.key is not null and w.holds_key is null
               group by w.task, w.key)
   and j.state in ('failed', 'cancelled')
   and not exists (select 1 from @jobs held where held.task = j.task and held.key = j.key and held.holds_key)
