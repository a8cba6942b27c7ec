-- Dead rows of our tables, by the server's own estimate, and whether they are vacuumed by themselves.
select s.relname::text as name, s.n_live_tup as live, s.n_dead_tup as dead,
       coalesce(o.option_value::boolean, true) as autovacuum
  from pg_stat_user_tables s join pg_class c on c.oid = s.relid
  left join lateral (select option_value from pg_options_to_table(c.reloptions)
                      where option_name = 'autovacuum_enabled') o on true
 where s.schemaname = :schema
 order by s.relname
