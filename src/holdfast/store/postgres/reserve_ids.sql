-- Ids for jobs that COPY will bring: from the first to the last, unless others took some in between. They never repeat,
-- also if it fails. None where COPY is not to be had: this role may not say which ids jobs get, or policies concern it, which
-- COPY does not know.
select min(id) as first, max(id) as last,
       case when max(id) - min(id) >= count(*) then array_agg(id order by id) end as ids, @clock as now
  from (select nextval(:sequence::regclass) as id
          from generate_series(1, case when has_column_privilege(:jobs::regclass, 'id', 'insert')
                                        and has_sequence_privilege(:sequence::regclass, 'usage')
                                        and not row_security_active(:jobs::regclass) then :n else 0 end)) reserved
