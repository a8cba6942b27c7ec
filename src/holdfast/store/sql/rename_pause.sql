update @pauses set name = :name
 where kind = 'cron' and name = :alias and not exists (select 1 from @pauses p where p.kind = 'cron' and p.name = :name)
