-- Of the jobs in hand: which are no longer ours, and what people have asked of the others.
select h.id, h.fence::text, j.id is null or j.state <> 'running' or j.fence is distinct from h.fence as lost,
       coalesce(j.cancel_requested, false) as cancel, coalesce(j.pause_requested, false) as pause
  from unnest(:ids::bigint[], :fences::uuid[]) as h (id, fence)
  left join @jobs j on j.id = h.id
 where j.id is null or j.state <> 'running' or j.fence is distinct from h.fence
    or j.cancel_requested or j.pause_requested
