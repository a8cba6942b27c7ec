-- What the server says about itself, for the doctor and for enqueues that wait for a standby.

-- name: server
-- What the doctor needs to know about the server and our place on it. Without pg_read_all_stats a role sees next to nothing
-- of others' sessions, not even their kind (`hidden`).
with session as (
    select *, backend_type = 'client backend' or (backend_type is null and datid is not null) as client from pg_stat_activity
)
select current_setting('server_version') as version,
       current_setting('autovacuum')::boolean as autovacuum,
       current_setting('max_connections')::integer
       - current_setting('superuser_reserved_connections')::integer
       - coalesce(current_setting('reserved_connections', true)::integer, 0) as connections,
       (select count(*)::integer from session where client) as used,
       (select datconnlimit from pg_database where datname = current_database()) as database_limit,
       (select rolconnlimit from pg_roles where rolname = current_user) as role_limit,
       (select count(*)::integer from session where client and datname = current_database()) as used_of_database,
       (select count(*)::integer from session where client and usename = current_user) as used_of_role,
       (select count(*)::integer from session where backend_type is null and datname = current_database()) as hidden

-- name: horizon
-- What keeps vacuum from removing dead rows, or the log from being recycled: open transactions, prepared ones, and
-- replication slots. (Always by the server's clock, also in tests.)
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

-- name: bloat
-- Dead rows in our tables, by the server's estimate, and whether autovacuum is on for them.
select s.relname::text as name, s.n_live_tup as live, s.n_dead_tup as dead,
       coalesce(o.option_value::boolean, true) as autovacuum
  from pg_stat_user_tables s join pg_class c on c.oid = s.relid
  left join lateral (select option_value from pg_options_to_table(c.reloptions)
                      where option_name = 'autovacuum_enabled') o on true
 where s.schemaname = :schema
 order by s.relname

-- name: stuck
-- Which of these server processes still wait for a synchronous standby.
select pid from pg_stat_activity where pid @any(processes) and wait_event = 'SyncRep'
