-- What the catalogue says of tables of the user's. Names of types outside of pg_catalog come with their schema: who asks has
-- no other schema in its search path.

-- name: tables_named
-- The tables that a name means: as SQL reads it (:schema, :name), or written exactly so (:raw).
select c.oid::bigint as oid, n.nspname::text as schema, c.relname::text as name, c.relkind::text as kind,
       pg_get_userbyid(c.relowner)::text as owner, c.reltuples::bigint as rows, c.relrowsecurity as row_security
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname !~ '^pg_' and n.nspname not in ('information_schema', :ours::text)
   and ((c.relname::text = :name::text and (:schema::text is null or n.nspname::text = :schema::text))
        or c.relname::text = :raw::text or n.nspname || '.' || c.relname = :raw::text)
 order by 2, 3

-- name: table_columns
select a.attname::text as name, format_type(a.atttypid, a.atttypmod) as type, a.atttypid::bigint as oid,
       b.typname::text as base, b.typtype::text as sort, a.attnotnull as required,
       pg_get_expr(d.adbin, d.adrelid) as "default", a.attgenerated <> '' or a.attidentity = 'a' as generated,
       (select array_agg(e.enumlabel::text order by e.enumsortorder) from pg_enum e where e.enumtypid = b.oid) as words,
       (select array_agg(pg_get_constraintdef(k.oid)) from pg_constraint k
         where k.contype = 'c' and ((k.conrelid = a.attrelid and k.conkey = array[a.attnum])
                                    or (k.contypid <> 0 and k.contypid = a.atttypid))) as checks
  from pg_attribute a
  join pg_type t on t.oid = a.atttypid
  join pg_type b on b.oid = case when t.typtype = 'd' then t.typbasetype else t.oid end
  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
 where a.attrelid = :oid::oid and a.attnum > 0 and not a.attisdropped
 order by a.attnum

-- name: table_keys
select x.indisprimary as "primary",
       (select array_agg(a.attname::text order by k.n) from unnest(x.indkey::smallint[]) with ordinality k (attnum, n)
          join pg_attribute a on a.attrelid = x.indrelid and a.attnum = k.attnum
         where k.n <= x.indnkeyatts) as columns
  from pg_index x
 where x.indrelid = :oid::oid and x.indisunique and x.indisvalid and x.indpred is null and x.indexprs is null
 order by x.indisprimary desc, x.indexrelid

-- name: table_triggers
select t.tgname::text as name, s.nspname::text as schema, p.proname::text as function,
       t.tgenabled <> 'D' as enabled
  from pg_trigger t join pg_proc p on p.oid = t.tgfoid join pg_namespace s on s.oid = p.pronamespace
 where t.tgrelid = :oid::oid and not t.tgisinternal
 order by t.tgname

-- name: table_rights
-- What the role that our functions act as may not do; and whether policies hide rows from it. Of a policy we know that it
-- hides nothing if it says `using (true)`.
select array(select what from unnest(array['select', 'update', 'trigger']) what
              where not has_table_privilege(:role::text, :oid::oid, what)) as missing,
       has_schema_privilege(:role::text, c.relnamespace, 'usage') as usage,
       c.relrowsecurity and not r.rolbypassrls and not r.rolsuper
         and (c.relforcerowsecurity or not pg_has_role(:role::text, c.relowner, 'usage'))
         and not exists (select 1 from pg_policy p where p.polrelid = c.oid and p.polpermissive and p.polcmd = '*'
                            and pg_get_expr(p.polqual, p.polrelid) = 'true'
                            and (0 = any(p.polroles) or exists (select 1 from unnest(p.polroles) m
                                                                 where pg_has_role(r.oid, nullif(m, 0), 'usage')))) as hidden
  from pg_class c, pg_roles r
 where c.oid = :oid::oid and r.rolname = :role

-- name: schema_owner
-- The role that our tables belong to, and that the functions of an adopted table act as.
select pg_get_userbyid(c.relowner)::text as owner, current_user::text as "user" from pg_class c where c.oid = '@meta'::regclass

-- name: tables_like
select c.relname::text as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where c.relkind in ('r', 'p') and n.nspname !~ '^pg_' and n.nspname not in ('information_schema')
 order by 1 limit 1000

-- name: schemas_closed
-- Those of these schemas that not everybody may create things in, in their order.
select n.nspname as name
  from unnest(:names::text[]) with ordinality as wanted (name, place) join pg_namespace n on n.nspname = wanted.name
 where n.nspname <> :ours
   and not exists (select 1 from aclexplode(n.nspacl) a where a.grantee = 0 and a.privilege_type = 'CREATE')
 order by wanted.place

-- name: table_functions
-- What stands in our functions for a table.
select proname::text as name, prosrc as body from pg_proc
 where pronamespace = to_regnamespace(quote_ident(:ours)) and proname::text = any(:names)
