-- What the doctor wants to know of the server and of our place on it. Of sessions of others a role sees next to nothing
-- without pg_read_all_stats, not even of what kind they are (`hidden`).
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
