-- Workers not heard of for long, that hold nothing any more. Leases don't depend on these rows.
delete from @workers
 where seen_at < @after(minus_age)
   and not exists (select 1 from @leases l where l.worker = @workers.id)
