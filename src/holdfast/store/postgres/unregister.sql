with offered as (delete from @offers where worker = :id)
delete from @workers where id = :id
