delete from @pauses where kind = :kind and name = :name returning name
