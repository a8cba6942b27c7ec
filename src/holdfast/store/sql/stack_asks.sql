-- Who is to tell where its handler is. Nearly always nobody: the table is empty.
select distinct job_id, fence from @stacks where answered_at is null
