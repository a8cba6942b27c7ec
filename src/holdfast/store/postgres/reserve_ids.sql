-- Ids for jobs that COPY will bring. They never repeat, also if it fails.
select nextval(:sequence::regclass) as id from generate_series(1, :n)
