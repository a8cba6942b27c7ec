insert into @leases (fence, worker, expires_at, held, job_ids)
values (:fence, :worker, @after(lease), :held, :ids)
