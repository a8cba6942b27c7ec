-- New jobs, many at once, from a JSON document with a place (`n`) for each.

-- name: enqueue_many
-- In their order: for roles that may not use COPY.
insert into @jobs (@columns(enqueue))
select @record_values(enqueue)
  from json_to_recordset(:jobs::json) as r (@record(enqueue), n integer)
 order by n
returning id

-- name: enqueue_keyed_many
-- In the order of their keys; of equal ones the first is kept.
insert into @jobs (@columns(enqueue_keyed))
select @record_values(enqueue_keyed)
  from json_to_recordset(:jobs::json) as r (@record(enqueue_keyed), n integer)
 order by task, key, n
on conflict (task, key) where holds_key do nothing
returning task, key, id

-- name: reserve_ids
-- Reserve ids for jobs that COPY will send: from the first to the last, unless others took some in between. They are never
-- used again, even if the COPY fails. None if this role can't use COPY: it may not choose ids, or row-level policies apply
-- to it, which COPY does not support.
select min(id) as first, max(id) as last,
       case when max(id) - min(id) >= count(*) then array_agg(id order by id) end as ids, @clock as now
  from (select nextval(:sequence::regclass) as id
          from generate_series(1, case when has_column_privilege(:jobs::regclass, 'id', 'insert')
                                        and has_sequence_privilege(:sequence::regclass, 'usage')
                                        and not row_security_active(:jobs::regclass) then :n else 0 end)) reserved
