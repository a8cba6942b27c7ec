-- Does the pause by filter `s` mean job `j`? What its filter leaves open is null.
(s.queues is null or j.queue in (select value from json_each(s.queues)))
   and (s.tasks is null or j.task in (select value from json_each(s.tasks)))
   and not exists (select 1 from json_each(s.arguments) w
                    where coalesce(j.args -> (w.value ->> 'route'), '')
                          not in (select value from json_each(w.value -> 'values')))
