-- The claim, in the order of its statements: which lanes are there, when to look again, which jobs come first; they are
-- taken, under one lease, and read when that is committed.

-- name: open_lanes
-- The lanes this worker may take from, with their first due time.
with recursive
@lanes
select * from open_lane

-- name: upcoming
-- When to look again for jobs of these lanes, all of which have due ones: when the next job of each falls due, and when the
-- first pause ends. And the version of the pauses by filter.
with lane (queue, task, priority) as materialized (
    select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') from json_each(:lanes)
)
select (select min((select j.ready_at from @jobs j @by_ready where @in_lane(j, lane) and j.ready_at > @now
                     order by j.ready_at limit 1)) from lane) as next_due,
       (select min(until) from @pauses p where @stands(p)) as pause_ends,
       (select filter_version from @meta) as filter_version

-- name: lane_jobs
-- The next due jobs of some lanes, each after the job named with it, as one JSON document: what orders them, whether they
-- may be claimed ahead of a free slot, and whether they are rows of an adopted table.
with lane (queue, task, priority, after_at, after_id) as materialized (
    select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
           json_extract(value, '$[3]'), json_extract(value, '$[4]')
      from json_each(:lanes)
)
select json_group_array(json((
           select json_group_array(json_array(-priority, ready_at, id, fresh, adopted))
             from (select j.priority, j.ready_at, j.id, @fresh(j) as fresh, j.source is not null as adopted
                     from @jobs j @by_ready
                    where @in_lane(j, lane) and @due(j) and (j.ready_at, j.id) > (lane.after_at, lane.after_id)
                    order by j.ready_at, j.id
                    limit :n))))
  from lane

-- name: claim
-- Take these jobs, chosen a moment ago under the same write lock.
update @jobs as j
   set state = 'running', fence = :fence, worker = :worker, started_at = @clock,
       attempt = attempt + 1, ready_at = null
 where id in (select value from json_each(:ids)) and state = 'queued' and @passes(j)

-- name: put_off
-- Their tables don't let us take these rows: not now, perhaps in a second.
update @jobs set ready_at = @after(wait) where id in (select value from json_each(:ids)) and state = 'queued' and ready_at is not null

-- name: lease
insert into @leases (fence, worker, expires_at, held, job_ids)
values (:fence, :worker, @after(lease), :held, :ids)

-- name: claimed
-- What we have taken, read when that is committed. As one JSON document: the driver gives the interpreter away and takes
-- it back for every row, and would wait in line for it each time.
select json_group_array(json_array(@values(claimed)))
  from @jobs
 where id in (select value from json_each(:ids)) and state = 'running' and fence = :fence

-- name: claim_of
-- What a claim took, looked up by its fence: after a commit whose reply was lost, or of jobs that could not
-- be read: others may have inserted text that is none.
select @columns(claimed, j)
  from @leases l, json_each(l.job_ids) held
  join @jobs j on j.id = held.value and j.fence = l.fence and j.state = 'running'
 where l.fence = :fence
 order by j.priority desc, j.run_at, j.id
