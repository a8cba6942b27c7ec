-- What the doctor wants to know of the server and of our place on it.
select current_setting('server_version') as version,
       current_setting('autovacuum')::boolean as autovacuum,
       current_setting('max_connections')::integer
       - current_setting('superuser_reserved_connections')::integer
       - coalesce(current_setting('reserved_connections', true)::integer, 0) as connections,
       (select count(*)::integer from pg_stat_activity where backend_type = 'client backend') as used,
       (select datconnlimit from pg_database where datname = current_database()) as database_limit,
       (select rolconnlimit from pg_roles where rolname = current_user) as role_limit,
       (select count(*)::integer from pg_stat_activity where datname = current_database()
           and backend_type = 'client backend') as used_of_database,
       (select count(*)::integer from pg_stat_activity where usename = current_user
           and backend_type = 'client backend') as used_of_role
