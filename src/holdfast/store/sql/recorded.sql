-- Was this attempt's outcome written already? Finished jobs keep their fence; other endings leave a row of history.
-- A job that the watchdog ended keeps its fence too, but its holder's outcome was not written: that one is lost.
select 1
 where exists (select 1 from @attempts
                where job_id = :id and fence = :fence and outcome not in ('crashed', 'lost'))
    or (exists (select 1 from @jobs
                 where id = :id and fence = :fence and state in ('succeeded', 'failed', 'cancelled'))
        and not exists (select 1 from @attempts where job_id = :id and fence = :fence))
