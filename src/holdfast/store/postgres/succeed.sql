-- Finish jobs that succeeded, many at once.

-- name: succeed
-- Finish jobs of one claim that we still hold, without a result. A count below the number sent means some were lost.
with done as (
    update @jobs set state = 'succeeded', finished_at = @clock, error_code = null, error_message = null, error_fingerprint = null
     where id = any(:ids) and state = 'running' and fence = :fence::uuid
    returning id, awaited, queue, task, run_at, started_at, finished_at
),
@count_successes
select count(*), array_agg(id) filter (where awaited) from done

-- name: succeed_with
-- The same, with a result each.
with done as (
    update @jobs j set state = 'succeeded', finished_at = @clock, error_code = null, error_message = null, error_fingerprint = null,
       result = r.result
      from unnest(:ids::bigint[], :results::json[]) as r (id, result)
     where j.id = r.id and j.state = 'running' and j.fence = :fence::uuid
    returning j.id, j.awaited, j.queue, j.task, j.run_at, j.started_at, j.finished_at
),
@count_successes
select count(*), array_agg(id) filter (where awaited) from done

-- name: count_successes
-- Successes are counted here, and not by a trigger on each row: thousands end in one statement.
counted as (
    insert into @deltas (at, n, began, waited_ms, ran_ms, queue, task, what)
    select max(finished_at), count(*), began, sum(waited), sum(ran), left(queue, 200), left(task, 200), 'succeeded'
      from (select queue, task, finished_at, date_trunc('minute', coalesce(started_at, finished_at)) as began,
                   greatest(0, date_part('epoch', started_at - run_at) * 1000) as waited,
                   greatest(0, date_part('epoch', finished_at - started_at) * 1000) as ran
              from done offset 0) each
     group by queue, task, began, @bucket(waited), @bucket(ran)
)
