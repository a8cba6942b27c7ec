-- The file and what is in it.

-- name: catalogue
-- These tables, their columns, indexes and triggers.
select 'table' as kind, m.name as relation, m.name as name, m.sql as definition
  from sqlite_master m
 where m.type = 'table' and m.name in (select value from json_each(:tables))
union all
select 'column', m.name, c.name,
       c.type || case when c."notnull" then ' not null' else '' end || coalesce(' default ' || c.dflt_value, '')
       || case when c.pk then ' primary key' else '' end
  from sqlite_master m, pragma_table_info(m.name) c
 where m.type = 'table' and m.name in (select value from json_each(:tables))
union all
select m.type, m.tbl_name, m.name, m.sql
  from sqlite_master m
 where m.type in ('index', 'trigger') and m.sql is not null and m.tbl_name in (select value from json_each(:tables))

-- name: journal_mode
pragma journal_mode
