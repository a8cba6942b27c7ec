-- name: unquiet
-- Is there anything but the depth of queues that an alert may be about? One short look, so that an idle worker needs no
-- other. `failing`: jobs failed lately, or attempts took long.
select @now as now, exists (select 1 from @alerts where ended_at is null) as standing,
       exists (select 1 from @rollups where grain = 'minute' and at > @after(minus_span)
                  and (what = 'failed' or (what = 'run' and detail in (select value from json_each(:slow))))) as failing,
       exists (select 1 from @workers where coalesce(polling ->> 'consecutive_errors', 0) >= :most_errors
                  or coalesce(polling ->> 'idle_seconds', 0) + (julianday(@now) - julianday(seen_at)) * 86400 > :window
                  or (julianday(@now) - julianday(seen_at)) * 86400 > 2 * lease + :late) as sick
