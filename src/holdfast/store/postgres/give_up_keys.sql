-- As key_given_up, for many.
select @give_up_keys(array_agg(a.task), array_agg(a.key), array_agg(@clock - make_interval(secs => a.reuse)))
  from (select distinct on (task, key) task, key, reuse
          from json_to_recordset(:jobs::json) as r (task text, key text, reuse float8)
         order by task, key, reuse) a
  join @jobs j on j.task = a.task and j.key = a.key and j.holds_key
 where j.state in ('failed', 'cancelled')
    or (j.state = 'succeeded' and j.finished_at <= @clock - make_interval(secs => a.reuse))
having count(*) > 0
