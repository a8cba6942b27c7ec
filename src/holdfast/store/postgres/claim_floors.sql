-- For claims from floors on (claim_floors.py).

-- name: given
-- Lanes that a worker names, each with a floor: an instant in seconds, -infinity for the whole lane.
given as materialized (
    select l.queue, l.task, l.priority, to_timestamp(l.floor) as ready_at, 0::bigint as id, not @paused(l) and not @closed(l) as open
      from unnest(:lane_queues::text[], :lane_tasks::text[], :lane_priorities::smallint[], :lane_floors::float8[])
           l (queue, task, priority, floor)
)

-- name: new_lanes
-- The lanes of jobs with an id above :newest, and the newest of these.
with new as materialized (
    select id, queue, task, priority from @jobs where id > :newest order by id limit 1000
)
select (select max(id) from new) as newest,
       (select json_agg(distinct jsonb_build_array(queue, task, priority)) from new
         where task = any(:tasks) and (:queues::text[] is null or queue = any(:queues::text[]))) as lanes

-- name: floors
-- What a claim from floors on has left, asked in its transaction: each lane it looked in with the due time of the first job
-- left there, or now: the lane's next floor. Null: the lane is paused.
with
@given
select json_agg(json_build_array(
           queue, task, priority,
           case when open then extract(epoch from coalesce((
               select j.ready_at from @jobs j
                where @in_lane(j, given) and @due(j) and j.ready_at >= given.ready_at @in_order(j) limit 1), @now)) end)) as floors
  from given

-- name: survey
-- Every lane of these tasks that has ready jobs, paused or not, with the due time of its first job, but not later than now;
-- the newest job; and how many lanes there are in these queues, whoever serves them (claim_floors.py).
with recursive
@lanes
select json_agg(json_build_array(queue, task, priority, extract(epoch from least(ready_at, @now))))
           filter (where task = any(:tasks)) as lanes,
       extract(epoch from @now)::float8 as at, coalesce((select max(id) from @jobs), 0) as newest, count(*) as met
  from lane

-- name: walked
-- How many entries of the claim's index this connection has walked over, dead or alive, and how many of its pages it has
-- read, since it last told the server's statistics: what both gain within a transaction is what the statements between have
-- walked. An entry marked as dead is passed over unseen, and not counted; its page is.
select pg_stat_get_xact_tuples_returned(index) as entries, pg_stat_get_xact_blocks_fetched(index) as pages
  from (select '@jobs_ready'::regclass as index) claims
