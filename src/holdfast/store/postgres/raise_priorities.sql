-- As raise_priority, for many.
select @raise_priorities(array_agg(task), array_agg(key), array_agg(priority))
  from (select task, key, max(priority) as priority
          from json_to_recordset(:jobs::json) as r (task text, key text, priority smallint)
         group by task, key) asked
