-- The roles of compose.yaml, made when the database is: `app_owner` may migrate, `app_worker` may use the tables that
-- `app_owner` makes and change none of them. Neither is a superuser. (On a database that you have already, and for
-- roles that may only enqueue or read: `holdfast sql roles`.)
\getenv owner_password OWNER_PASSWORD
\getenv worker_password WORKER_PASSWORD
create role app_owner login password :'owner_password';
create role app_worker login password :'worker_password';
revoke all on database :"DBNAME" from public;
grant connect, create on database :"DBNAME" to app_owner;
grant connect on database :"DBNAME" to app_worker;
alter default privileges for role app_owner grant usage on schemas to app_worker;
alter default privileges for role app_owner grant select, insert, update, delete on tables to app_worker;
alter default privileges for role app_owner grant usage on sequences to app_worker;
alter default privileges for role app_owner grant execute on functions to app_worker;
