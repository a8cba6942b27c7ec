-- name: unquiet
-- Is there anything but the depth of queues that an alert may be about? One short look, so that an idle worker needs no
-- other. `failing`: jobs failed lately, or attempts took long.
select @now as now, exists (select 1 from @alerts where ended_at is null) as standing,
       exists (select 1 from @rollups where grain = 'minute' and at > @after(minus_span)
                  and (what = 'failed' or (what = 'run' and detail = any(:slow::text[])))) as failing,
       exists (select 1 from @workers where coalesce((polling::json ->> 'consecutive_errors')::int, 0) >= :most_errors
                  or coalesce((polling::json ->> 'idle_seconds')::float8, 0)
                     + extract(epoch from @now - seen_at) > :window::float8
                  or extract(epoch from @now - seen_at) > 2 * lease + :late::float8) as sick
