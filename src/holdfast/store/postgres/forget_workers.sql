-- Workers not heard of for long, that hold nothing any more. Leases don't depend on these rows (F5), offers do; those of
-- a worker that was not seen of late count no more.
with gone as (
    delete from @workers
     where seen_at < @after(minus_age)
       and not exists (select 1 from @leases l where l.worker = @workers.id)
)
delete from @offers o where not exists (
    select 1 from @workers w where w.id = o.worker and w.seen_at > @now - 2 * make_interval(secs => w.lease))
