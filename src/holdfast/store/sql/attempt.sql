-- One attempt of history. Written again after a lost reply, it stays as it was.
insert into @attempts (job_id, fence, life, number, worker, outcome, started_at, ended_at,
                       error_code, error_message, traceback, output)
values (:id, :fence, :life, :number, :worker, :outcome, :started_at, @clock,
        :error_code, :error_message, :traceback, :output)
on conflict (job_id, fence) do nothing
