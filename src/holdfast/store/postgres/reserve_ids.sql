-- Ids for jobs that COPY will bring: from the first to the last, unless others took some in between. They never repeat,
-- also if it fails.
select min(id) as first, max(id) as last,
       case when max(id) - min(id) >= count(*) then array_agg(id order by id) end as ids, @clock as now
  from (select nextval(:sequence::regclass) as id from generate_series(1, :n)) reserved
