delete from @steps where job_id @any(ids)
