-- The job that has this key, and for how long it has been there: of an enqueue whose reply was lost.
select id, extract(epoch from @clock - created_at)::float8 as age from @jobs where task = :task and key = :key and holds_key
