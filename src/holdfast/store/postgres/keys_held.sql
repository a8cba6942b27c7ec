select j.task, j.key, j.id, j.state, j.queue, j.priority
  from json_to_recordset(:jobs::json) as r (task text, key text)
  join @jobs j on j.task = r.task and j.key = r.key and j.holds_key
