-- What keeps vacuum from removing dead rows, or the log from being recycled: open transactions, prepared ones, and
-- replication slots. (Not by our own clock: by the server's.)
select 'session' as kind, pid::text as name, application_name as application, usename::text as owner, state,
       extract(epoch from clock_timestamp() - xact_start)::float8 as seconds, null::bigint as transactions
  from pg_stat_activity
 where (datname = current_database() or backend_type = 'walsender') and pid <> pg_backend_pid()
   and (backend_xmin is not null or backend_xid is not null or state like 'idle in transaction%')
   and backend_type <> 'autovacuum worker'
   and xact_start <= clock_timestamp() - make_interval(secs => :seconds::float8)
union all
select 'prepared transaction', gid, '', owner::text, 'prepared',
       extract(epoch from clock_timestamp() - prepared)::float8, null
  from pg_prepared_xacts
 where database = current_database() and prepared <= clock_timestamp() - make_interval(secs => :seconds::float8)
union all
select 'replication slot', slot_name::text, coalesce(plugin::text, ''), '', case when active then 'active' else 'inactive' end,
       null, greatest(age(xmin), age(catalog_xmin))::bigint
  from pg_replication_slots
 where not active or greatest(age(xmin), age(catalog_xmin)) > :transactions
 order by 1, 6 desc
