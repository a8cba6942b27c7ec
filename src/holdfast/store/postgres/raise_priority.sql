-- An enqueue joins a job that waits under the same key, and asks for a higher priority: the job gets it, by way of a
-- function, as in key_given_up.
select @raise_priorities(array[:task::text], array[:key::text], array[:priority::smallint])
