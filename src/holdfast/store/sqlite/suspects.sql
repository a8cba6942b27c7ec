-- Jobs that wait to be run alone.
select id, suspect_at, suspect_until, priority
  from @jobs j indexed by @jobs_suspect
 where suspect_at is not null
   and task in (select value from json_each(:tasks))
   and (:queues is null or queue in (select value from json_each(:queues)))
   and not exists (select 1 from @pauses p
                    where (p.until is null or p.until > @now)
                      and ((p.kind = 'queue' and p.name = j.queue) or (p.kind = 'task' and p.name = j.task)))
 order by priority desc, suspect_at, id
