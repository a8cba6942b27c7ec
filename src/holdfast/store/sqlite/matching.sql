-- Does the filter match this job? What the filter leaves open is null.
(:states is null or state in (select value from json_each(:states))
     or (state = 'queued' and run_at > @now
         and ((:scheduled and attempt = 0) or (:retrying and attempt > 0))))
   and (:queues is null or queue in (select value from json_each(:queues)))
   and (:tasks is null or task in (select value from json_each(:tasks)))
   and (:keys is null or key in (select value from json_each(:keys)))
   and (:workers is null or worker in (select value from json_each(:workers))
        or substr(worker, 1, instr(worker, '~') - 1) in (select value from json_each(:workers)))
   and (:sources is null or source in (select value from json_each(:sources)))
   and (:rows is null or source_id in (select value from json_each(:rows)))
   and (:groups is null or error_fingerprint in (select value from json_each(:groups)))
   and (:tags is null
        or not exists (select 1 from json_each(:tags) t where t.value not in (select value from json_each(tags))))
   and (:error is null
        or (state <> 'succeeded' and (error_code like :error escape '\' or error_message like :error escape '\')))
   and (coalesce(@after(minus_since), :since_time) is null
        or coalesce(finished_at, started_at, created_at) >= coalesce(@after(minus_since), :since_time))
   and (:arguments is null
        or not exists (select 1 from json_each(:arguments) w
                        where coalesce(args -> (w.value ->> 'route'), '')
                              not in (select value from json_each(w.value -> 'values'))))
