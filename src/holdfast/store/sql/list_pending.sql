-- List those of these jobs that have work pending.
insert into @pending (job_id)
select id from @jobs where id @any(ids) and pending > 0
on conflict do nothing
