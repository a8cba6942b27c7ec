-- As raise_priority, for many: locked in order of their keys, so that two at once can't wait for each other.
with asked as (
    select task, key, max(priority) as priority
      from json_to_recordset(:jobs::json) as r (task text, key text, priority smallint)
     group by task, key
),
lower as materialized (
    select j.id, asked.priority from asked join @jobs j on j.task = asked.task and j.key = asked.key and j.holds_key
     where j.state in ('queued', 'paused') and j.priority < asked.priority
     order by j.task, j.key for update of j
)
update @jobs j set priority = lower.priority from lower
 where j.id = lower.id and j.state in ('queued', 'paused') and j.priority < lower.priority
