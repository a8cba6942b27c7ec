-- Does the pause by filter `s` mean job `j`? What its filter leaves open is null.
(s.queues is null or j.queue = any(s.queues)) and (s.tasks is null or j.task = any(s.tasks))
   and not exists (select 1 from json_array_elements(s.arguments) w
                    where coalesce(@argument(j.args, (w ->> 'path')::text[]), '')
                          not in (select json_array_elements_text(w -> 'values')))
