-- Set aside those of these jobs that a pause by filter means: they stand in nobody's way until it ends. Their due time
-- stays.
with switch as (
    select * from @pauses where kind = 'filter' and (until is null or until > @now)
)
update @jobs as j
   set barred_by = (select s.name from switch s where @meant order by s.name limit 1),
       ready_at = null
 where id @any(ids) and state = 'queued' and barred_by is null and exists (select 1 from switch s where @meant)
returning id, queue, state
