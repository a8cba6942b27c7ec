-- Finish jobs of one claim that we still hold, without a result. A count below the number sent: some were lost.
with done as (
    update @jobs set state = 'succeeded', finished_at = @clock, error_code = null, error_message = null
     where id = any(:ids) and state = 'running' and fence = :fence::uuid
    returning id, awaited
)
select count(*), array_agg(id) filter (where awaited) from done
