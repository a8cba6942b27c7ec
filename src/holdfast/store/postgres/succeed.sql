-- Finish jobs that succeeded, many at once.

-- name: succeed
-- Finish jobs of one claim that we still hold, without a result. A count below the number sent means some were lost.
with done as (
    update @jobs set state = 'succeeded', finished_at = @clock, error_code = null, error_message = null, error_fingerprint = null
     where id = any(:ids) and state = 'running' and fence = :fence::uuid
    returning id, awaited
)
select count(*), array_agg(id) filter (where awaited) from done

-- name: succeed_with
-- The same, with a result each.
with done as (
    update @jobs j set state = 'succeeded', finished_at = @clock, error_code = null, error_message = null, error_fingerprint = null,
       result = r.result
      from unnest(:ids::bigint[], :results::json[]) as r (id, result)
     where j.id = r.id and j.state = 'running' and j.fence = :fence::uuid
    returning j.id, j.awaited
)
select count(*), array_agg(id) filter (where awaited) from done
