-- As key_given_up, for many: locked in order of their keys, so that two at once can't wait for each other.
with asked as (
    select distinct on (task, key) task, key, reuse from json_to_recordset(:jobs::json) as r (task text, key text, reuse float8)
     order by task, key, reuse
),
old as materialized (
    select j.id from asked join @jobs j on j.task = asked.task and j.key = asked.key and j.holds_key
     where j.state in ('failed', 'cancelled')
        or (j.state = 'succeeded' and j.finished_at <= @clock - make_interval(secs => asked.reuse))
     order by j.task, j.key for update of j
)
update @jobs j set holds_key = null from old
 where j.id = old.id and j.holds_key and j.state in ('succeeded', 'failed', 'cancelled')
