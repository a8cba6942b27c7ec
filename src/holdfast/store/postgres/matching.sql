-- Does the filter match this job? What the filter leaves open is null.
(:states::text[] is null or state = any(:states::text[])
     or (state = 'queued' and run_at > @now
         and ((:scheduled::boolean and attempt = 0) or (:retrying::boolean and attempt > 0))))
   and (:queues::text[] is null or queue = any(:queues::text[]))
   and (:tasks::text[] is null or task = any(:tasks::text[]))
   and (:keys::text[] is null or key = any(:keys::text[]))
   and (:workers::text[] is null or worker = any(:workers::text[]) or split_part(worker, '~', 1) = any(:workers::text[]))
   and (:sources::text[] is null or source = any(:sources::text[]))
   and (:rows::text[] is null or source_id = any(:rows::text[]))
   and (:groups::text[] is null or error_fingerprint = any(:groups::text[]))
   and (:tags::text[] is null or tags @> :tags::text[])
   and (:error::text is null or (state <> 'succeeded' and (error_code ilike :error or error_message ilike :error)))
   and (coalesce(@after(minus_since), :since_time::timestamptz) is null
        or coalesce(finished_at, started_at, created_at) >= coalesce(@after(minus_since), :since_time::timestamptz))
   and (:arguments::json is null
        or not exists (select 1 from json_array_elements(:arguments::json) w
                        where coalesce(@argument(args, (w ->> 'path')::text[]), '')
                              not in (select json_array_elements_text(w -> 'values'))))
