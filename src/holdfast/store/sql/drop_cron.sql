delete from @crons where name = :name
