-- What is in a schema: tables, columns, constraints, indexes, and triggers with the functions they run (but the one that is
-- there only while a table is adopted). Constraints are
-- identified by their definition, as the server chooses their names. A column of one of our domains includes its definition.
with ours as (
    select c.oid, c.relname::text as relation from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = :schema and c.relkind in ('r', 'p')
)
select 'table' as kind, relation, relation as name, '' as definition from ours
union all
select 'column', o.relation, a.attname::text,
       case when y.typtype = 'd' then y.typname || ' (' || format_type(y.typbasetype, y.typtypmod) || coalesce((
                 select string_agg(' ' || pg_get_constraintdef(k.oid), '' order by k.conname)
                   from pg_constraint k where k.contypid = y.oid), '') || ')'
            else format_type(a.atttypid, a.atttypmod) end || case when a.attnotnull then ' not null' else '' end
       || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
       || case when a.attidentity <> '' then ' identity' else '' end
  from ours o join pg_attribute a on a.attrelid = o.oid and a.attnum > 0 and not a.attisdropped
  join pg_type y on y.oid = a.atttypid
  left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
union all
select 'constraint', o.relation, pg_get_constraintdef(k.oid), pg_get_constraintdef(k.oid)
  from ours o join pg_constraint k on k.conrelid = o.oid and k.contype in ('c', 'f', 'p', 'u', 'x')
union all
select 'index', o.relation, i.relname::text,
       regexp_replace(pg_get_indexdef(x.indexrelid), ' ON (ONLY )?[^ ]+[.]', ' on ')
       || case when x.indisvalid then '' else ' (not valid)' end
  from ours o join pg_index x on x.indrelid = o.oid join pg_class i on i.oid = x.indexrelid
union all
select 'trigger', o.relation, t.tgname::text,
       regexp_replace(regexp_replace(pg_get_triggerdef(t.oid), ' ON [^ ]+[.]', ' on '), ' FUNCTION [^ ]+[.]', ' function ')
       || case t.tgenabled when 'O' then '' else ' (enabled: ' || t.tgenabled::text || ')' end
       || ' /*' || regexp_replace(regexp_replace(p.prosrc, '("[^"]+"|pg_temp)[.]', '', 'g'), '\s+', ' ', 'g') || '*/'
  from ours o join pg_trigger t on t.tgrelid = o.oid and not t.tgisinternal and t.tgname <> 'adopted_out' join pg_proc p on p.oid = t.tgfoid
