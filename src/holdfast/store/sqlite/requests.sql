-- Of the jobs in hand: which are no longer ours, and what people have asked of the others.
select h.value ->> 0 as id, h.value ->> 1 as fence,
       (j.id is null or j.state <> 'running' or j.fence is not h.value ->> 1) as lost,
       coalesce(j.cancel_requested, 0) as cancel, coalesce(j.pause_requested, 0) as pause
  from json_each(:held) h
  left join @jobs j on j.id = h.value ->> 0
 where j.id is null or j.state <> 'running' or j.fence is not h.value ->> 1
    or j.cancel_requested or j.pause_requested
