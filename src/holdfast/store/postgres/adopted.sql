-- What workers and `adopt` do with adopted tables. The work is done by functions, as the owner of our tables.

-- name: sources
-- `refused`: why the table could not be worked of late.
select name, mapping, suspended, swept_to, case when busy_until > @now - interval '10 seconds' then trouble end as refused
  from @sources order by name

-- name: settle
select settled, waiting, due, asked, queue from @settle(:source, :most, @clock, :stays)

-- name: settle_row
select id, state from @settle_row(:source, :source_id, @clock)

-- name: beat
select @beat(:source, @clock)

-- name: sweep
select reached, strays from @sweep(:source, :after, :most, @clock)

-- name: unsettled
-- Changes of rows that nobody has taken up, and jobs that are owed to their rows, up to a number of each. What is owed has an
-- entry in the inbox, too.
with entries as (
    select i.at, j.owed, coalesce(j.finished_at, j.started_at, j.created_at) as since
      from (select i.source, i.source_id, i.at from @inbox i where i.source = :source order by i.id limit :most) i
      left join @jobs j on j.source = i.source and j.source_id = i.source_id
)
select count(*) filter (where owed is not true) as inbox, min(at) filter (where owed is not true) as inbox_since,
       count(*) filter (where owed) as owed, min(since) filter (where owed) as owed_since
  from entries

-- name: add_source
-- It is walked along from the beginning, also if it was adopted before.
insert into @sources (name, mapping, functions, swept_to) values (:name, :mapping, :functions, 'row:')
on conflict (name) do update set mapping = excluded.mapping, suspended = false, busy_until = null,
       swept_to = case when @sources.mapping::text = excluded.mapping::text and not @sources.suspended then @sources.swept_to else 'row:' end

-- name: suspend_source
update @sources set suspended = :suspended, busy_until = null where name = :name returning name

-- name: source_swept_to
update @sources set swept_to = :to where name = :name

-- name: owed_to_inbox
insert into @inbox (source, source_id) select source, source_id from @jobs where source = :name and owed

-- name: source_held
-- What workers of ours run of this table, and the jobs whose rows don't know yet what became of them.
select count(*) filter (where state = 'running' and worker not like 'foreign:%') as running, count(*) filter (where owed) as owed
  from @jobs where source = :name and (state = 'running' or owed)

-- name: forget_source_jobs
-- The jobs of a source that have not finished, and the leases of foreign workers on them.
with gone as (
    delete from @jobs
     where source = :name and (state in ('queued', 'paused') or (state = 'running' and worker like 'foreign:%'))
    returning id, fence
),
leases as (
    delete from @leases where fence in (select fence from gone)
)
select id from gone

-- name: forget_source
with entries as (
    delete from @inbox where source = :name
),
owing as (
    update @jobs set owed = false where source = :name and owed
)
delete from @sources where name = :name

-- name: has_out_trigger
select exists (select 1 from pg_trigger where tgrelid = '@jobs'::regclass and tgname = 'adopted_out') as there,
       exists (select 1 from @sources) as needed

-- name: lock_key
-- Until the end of the transaction nobody else submits a row with this key.
select pg_advisory_xact_lock(hashtextextended(:source::text || ':' || :key::text, 0))
