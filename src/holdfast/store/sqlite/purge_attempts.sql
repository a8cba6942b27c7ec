delete from @attempts where job_id in (select value from json_each(:ids))
