delete from @workers where id = :id
