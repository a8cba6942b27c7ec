delete from @pending where job_id @any(ids)
