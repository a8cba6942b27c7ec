delete from @attempts where job_id = :id
