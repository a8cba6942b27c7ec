-- For claims from floors on (claim_floors.py).

-- name: given
-- Lanes that a worker names, each with a floor: an instant in seconds, -infinity for the whole lane. And from :since on the
-- lanes of jobs with an id above :newest (null: none), those that a claim has just taken included: that lane is known now.
new as materialized (
    select id, queue, task, priority from @jobs where id > :newest::bigint order by id limit 1000
),
known as materialized (
    select * from unnest(:lane_queues::text[], :lane_tasks::text[], :lane_priorities::smallint[], :lane_floors::float8[])
                  l (queue, task, priority, floor)
),
given as materialized (
    select l.queue, l.task, l.priority, to_timestamp(l.floor) as ready_at, 0::bigint as id, not @paused(l) as open
      from (select * from known
            union all
            select distinct queue, task, priority, :since::float8 from new
             where task = any(:tasks) and (:new_queues::text[] is null or queue = any(:new_queues::text[]))
               and not exists (select 1 from known k where (k.queue, k.task, k.priority) = (new.queue, new.task, new.priority))
           ) l
)

-- name: floors
-- What a claim from floors on has left, asked in its transaction (claim_floors.py): each lane it looked in with the due
-- time of the first job left there, or now: the lane's next floor (null: the lane is paused); and the newest job seen.
with
@given
select json_agg(json_build_array(
           queue, task, priority,
           case when open then extract(epoch from coalesce((
               select j.ready_at from @jobs j
                where @in_lane(j, given) and @due(j) and j.ready_at >= given.ready_at @in_order(j) limit 1), @now)) end)) as floors,
       coalesce((select max(id) from new), :newest::bigint) as newest
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
