delete from @attempts where job_id @any(ids)
