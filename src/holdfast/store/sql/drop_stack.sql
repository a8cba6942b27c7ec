-- The question was answered, or given up; so were those that nobody took back.
delete from @stacks where id = :id or asked_at < @after(minus_age)
