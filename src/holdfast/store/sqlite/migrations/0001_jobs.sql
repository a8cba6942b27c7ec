-- The whole schema of Holdfast on SQLite. `@name` stands for a table or index of ours under the configured prefix.
-- Instants are UTC text, 'YYYY-MM-DD HH:MM:SS.ffffff': they sort as text, and SQLite's date functions read them.

create table @meta (
    only_row    integer primary key check (only_row = 1),
    store_id    text not null,
    version     integer not null,           -- the newest migration applied
    oldest_code integer not null,           -- the oldest code (by the migration it knows) this schema still serves
    filter_version integer not null default 0  -- another one whenever a pause by filter begins, changes or is ended
);

-- AUTOINCREMENT: ids never repeat, not even after the newest job was deleted.
create table @jobs (
    id               integer primary key autoincrement,
    created_at       text not null default (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    run_at           text not null default (strftime('%Y-%m-%d %H:%M:%f', 'now')),  -- when it is, or was, due
    ready_at         text default (strftime('%Y-%m-%d %H:%M:%f', 'now')),  -- = run_at while it may be claimed, else null: the claim's index
    started_at       text,
    finished_at      text,
    failed_at        text,
    expires_at       text,                    -- not started by then: cancelled
    fence            text,                    -- of the newest claim; kept when finished
    priority         integer not null default 0 check (priority between -100 and 100),
    attempt          integer not null default 0,
    max_attempts     integer not null default 3 check (max_attempts >= 1),
    life             integer not null default 1,
    pending          integer,
    done             integer,
    total            integer,
    crashes          integer not null default 0,
    suspicion        integer not null default 0,  -- times in a row it was running among others when their process died
    pause_requested  integer not null default 0,
    cancel_requested integer not null default 0,
    awaited          integer not null default 0,
    owed             integer not null default 0,  -- what it became is still to be written to its row (see sources)
    holds_key        integer,
    state            text not null default 'queued'
        check (state in ('queued', 'running', 'succeeded', 'failed', 'paused', 'cancelled')),
    queue            text not null,
    task             text not null,
    worker           text,
    key              text,
    correlation_id   text,
    tags             text,                    -- a JSON array
    args             text not null,
    result           text,
    checkpoint       text,
    note             text,
    error_code       text,
    error_message    text,
    error_fingerprint text,                   -- equal for errors of one kind
    asked_at         text,                    -- when people asked for the pause or cancel that holds, or did
    asked_by         text,
    asked_why        text,
    progressed_at    text,                    -- when `done` was last told
    rate             real,                    -- items a second, of late
    held_by          text,                    -- what keeps it from being claimed while it is queued: `pause:<filter>`
    source           text,                    -- the adopted table whose row it works, and that row's id as text
    source_id        text,
    counted          integer,                 -- who inserted it has counted that (see deltas)
    -- A queued job that can never be claimed must not exist, nor a running one without a holder. So a queued one
    -- is ready, or names what holds it.
    check (state not in ('queued', 'paused') or attempt < max_attempts),
    check (case when state = 'queued' then (ready_at is null) = (held_by is not null)
                else ready_at is null and held_by is null end),
    check (state <> 'running' or fence is not null),
    -- Anyone may insert a job, and SQLite takes anything for text: one that nobody could read would hinder all.
    constraint names_are_text check (typeof(queue) = 'text' and typeof(task) = 'text'),
    constraint args_are_json_text check (typeof(args) = 'text' and json_valid(args)),
    constraint tags_are_a_json_array check (
        tags is null or (typeof(tags) = 'text' and case when json_valid(tags) then json_type(tags) = 'array' end is true)),
    constraint numbers_are_integers check (
        typeof(priority) = 'integer' and typeof(attempt) = 'integer' and typeof(max_attempts) = 'integer'),
    constraint created_at_is_utc_text check (
        datetime(substr(created_at, 1, 19), '+0 days') is substr(created_at, 1, 19) and created_at >= '0001'
        and (length(created_at) = 19 or (substr(created_at, 20, 2) glob '.[0-9]' and substr(created_at, 22) not glob '*[^0-9]*'))
        and instr(created_at, char(0)) = 0),
    constraint run_at_is_utc_text check (
        datetime(substr(run_at, 1, 19), '+0 days') is substr(run_at, 1, 19) and run_at >= '0001'
        and (length(run_at) = 19 or (substr(run_at, 20, 2) glob '.[0-9]' and substr(run_at, 22) not glob '*[^0-9]*'))
        and instr(run_at, char(0)) = 0),
    constraint expires_at_is_utc_text check (
        datetime(substr(expires_at, 1, 19), '+0 days') is substr(expires_at, 1, 19) and expires_at >= '0001'
        and (length(expires_at) = 19 or (substr(expires_at, 20, 2) glob '.[0-9]' and substr(expires_at, 22) not glob '*[^0-9]*'))
        and instr(expires_at, char(0)) = 0),
    -- Later than it is due: its row could not be taken.
    constraint ready_at_is_run_at_or_later check (
        ready_at is null or ready_at = run_at or (
        ready_at > run_at and datetime(substr(ready_at, 1, 19), '+0 days') is substr(ready_at, 1, 19)
        and (length(ready_at) = 19 or (substr(ready_at, 20, 2) glob '.[0-9]' and substr(ready_at, 22) not glob '*[^0-9]*'))
        and instr(ready_at, char(0)) = 0))
);

-- The claim walks lanes: one (queue, task, priority) after another, each in due order. So neither paused, unserved
-- nor future jobs stand in front of a due one, however many there are.
create index @jobs_ready on @jobs (queue, task, priority, ready_at, id) where ready_at is not null;
create index @jobs_expiring on @jobs (expires_at) 
    where expires_at is not null and (ready_at is not null or held_by is not null) and attempt = 0;
create index @jobs_held on @jobs (held_by, id) where held_by is not null;
create index @jobs_asked on @jobs (id) where cancel_requested or pause_requested;
create index @jobs_failed on @jobs (failed_at) where failed_at is not null;
-- Errors of one kind: of jobs that failed, and of those that are tried again. A success changes nothing in it.
create index @jobs_error on @jobs (error_fingerprint, task, failed_at, id) where error_fingerprint is not null;
create unique index @jobs_key on @jobs (task, key) where holds_key;
create unique index @jobs_source on @jobs (source, source_id) where source is not null;
create index @jobs_owed on @jobs (source) where owed;

-- What happened to jobs, to be added up (holdfast/store/rollups.py): appended in the transaction in which it happens, by
-- statements and by triggers. Those serve other programs, too, so they use nothing of ours, and no SQL that old libraries lack.
create table @deltas (
    id        integer primary key,
    at        text not null,
    n         integer not null,
    began     text,                          -- an attempt has ended: when it started,
    waited_ms real,                          -- how long the job had been due then, and how long the attempt ran
    ran_ms    real,                          -- (the sum of n that are all in one bucket)
    rescued   integer,
    queue     text not null,
    task      text not null,
    what      text,
    detail    text not null default '',
    origin    text,                          -- it began another life: the state that it was in
    error     text                           -- the fingerprint of the error that the attempt ended with
);

create table @rollups (
    grain  text not null check (grain in ('minute', 'hour', 'total', '15min', '3h')),
    at     text not null,                    -- when that minute or hour began
    queue  text not null,
    task   text not null,
    what   text not null,
    detail text not null,
    n      integer not null,
    total  real not null,                    -- of histograms: milliseconds
    primary key (grain, at, queue, task, what, detail)
);

-- Jobs of one statement of theirs, as the rows of an adopted table are: one delta, if they are of the same minute. To fold
-- a delta for each takes longer than to make the job.
create trigger @jobs_enqueued after insert on @jobs when new.counted is null
begin
    update @deltas set n = n + 1
     where id = (select max(id) from @deltas) and what = 'enqueued' and queue = new.queue and task = new.task
       and substr(at, 1, 16) = substr(new.created_at, 1, 16);

    insert into @deltas (at, n, queue, task, what)
    select new.created_at, 1, new.queue, new.task, 'enqueued' where changes() = 0;
end;

-- All other changes of state but two: claims and the successes that workers record count nothing, or by a statement of
-- their own. Those two write none of the columns that the trigger names, and every other statement does: so they don't pay
-- for it. What ends an attempt counts its start, too; until then it is read from the job.
create trigger @jobs_moved after update of cancel_requested, held_by, life, total on @jobs
when new.state <> old.state and (old.state not in ('queued', 'paused') or new.state in ('succeeded', 'failed', 'cancelled'))
begin
    insert into @deltas (at, n, began, waited_ms, ran_ms, rescued, queue, task, what, detail, origin, error)
    select m.now, 1, case when m.ended then coalesce(strftime('%Y-%m-%d %H:%M:%f', old.started_at), m.now) end,
           case when m.ended then coalesce(max(0, (julianday(old.started_at) - julianday(old.run_at)) * 86400000.0), 0) end,
           case when m.charged then coalesce(max(0, (julianday(m.now) - julianday(old.started_at)) * 86400000.0), 0) end,
           case when m.rescued then 1 end, new.queue, new.task,
           case when m.finished then new.state when m.charged then 'retried' when m.ended and not m.rescued then 'released' end,
           case when new.state = 'failed' then coalesce(new.error_code, '')
                when new.state = 'cancelled' then old.state
                when m.charged and not m.finished then cast(old.attempt as text)
                else '' end,
           case when old.state in ('succeeded', 'failed', 'cancelled') and new.state <> 'cancelled' then old.state end,
           case when (m.charged or m.rescued) and new.state in ('queued', 'paused', 'failed') then new.error_fingerprint end
      from (select k.*, k.ended and not k.rescued and new.attempt >= old.attempt as charged
              from (select old.state = 'running' as ended, new.state in ('succeeded', 'failed', 'cancelled') as finished,
                           old.state = 'running' and (new.crashes > old.crashes or new.suspicion > old.suspicion) as rescued,
                           coalesce(strftime('%Y-%m-%d %H:%M:%f', new.finished_at),
                                    max(strftime('%Y-%m-%d %H:%M:%f', 'now'), coalesce(strftime('%Y-%m-%d %H:%M:%f', old.started_at), ''))) as now
                   ) k) m;
end;

create trigger @jobs_gone after delete on @jobs when old.state = 'running'
begin
    insert into @deltas (at, n, began, waited_ms, queue, task)
    select s.at, 1, s.at, max(0, (julianday(s.at) - julianday(old.run_at)) * 86400000.0), old.queue, old.task
      from (select strftime('%Y-%m-%d %H:%M:%f', coalesce(old.started_at, 'now')) as at) s
     where s.at is not null;
end;

-- One row a claim call: the lease of all jobs it took. Renewals touch only this small row.
create table @leases (
    fence      text primary key,
    worker     text not null,
    expires_at text not null,
    held       integer not null,             -- how many jobs the worker had in hand when last heard of
    job_ids    text not null                 -- a JSON array
);

create table @attempts (
    job_id        integer not null,
    fence         text not null,
    life          integer not null,
    number        integer not null,
    worker        text,
    outcome       text not null,
    started_at    text,
    ended_at      text not null,
    error_code    text,
    error_message text,
    traceback     text,
    output        text,                       -- what it wrote, if it had a process of its own
    primary key (job_id, fence)
) without rowid;

-- What the steps of a job returned. A step is run once, however many attempts and lives the job takes.
create table @steps (
    job_id   integer not null,
    name     text not null,
    life     integer not null,
    attempt  integer not null,
    ended_at text not null,
    result   text not null,
    primary key (job_id, name)
) without rowid;

-- The jobs that may have work pending: what a checkpoint counted is summed by this list, so that neither finished jobs
-- nor those that count nothing are looked at. A job that finished is taken off later.
create table @pending (
    job_id integer primary key
);

create table @workers (
    id         text primary key,
    name       text not null,
    host       text not null,
    pid        integer not null,
    queues     text,
    tasks      text not null,
    crons      text not null default '[]',
    slots      integer not null,
    lease      real not null,               -- seconds: it is seen at least that often
    grace      real not null default 25,    -- seconds a handler has to stop before its process is ended
    timeouts   text not null default '{}',  -- a JSON object: seconds an attempt may run, by task
    runners    text not null default '[]',  -- JSON: how many of the slots are for which tasks, [[2, ["resize"]], ...]
    started_at text not null,
    seen_at    text not null,
    polling    text not null default '{}',  -- a JSON object: what its polls did in the minute before it was seen
    version    text,                        -- of Holdfast
    memory     integer,                     -- bytes that its processes occupied when it was seen

    stop_requested_at text,                 -- when people asked it to stop, who, and why
    stop_requested_by text,
    stop_reason       text
);

-- What should make people look (holdfast/model/alerts.py): one row for each time, and one that stands for each thing.
create table @alerts (
    id         integer primary key autoincrement,
    name       text not null,
    subject    text not null,                -- the queue, the task or the worker it is about; empty: all
    text       text not null,
    value      real not null,
    since      text not null,         -- when it was first found
    started_at text,                  -- when it had lasted long enough
    ended_at   text
);
create unique index @alerts_standing on @alerts (name, subject) where ended_at is null;

create table @pauses (
    kind       text not null check (kind in ('queue', 'task', 'cron', 'filter')),
    name       text not null,               -- of a filter: its text
    by         text,
    reason     text,
    until      text,
    created_at text not null,
    primary key (kind, name)
);

-- One row a cron: what to enqueue, and when. Whoever moves `next_at` on enqueues the job, in the same transaction. A task
-- declares a cron of its own name, and its jobs have no arguments; people make the others at run time.
create table @crons (
    name         text primary key,               -- of its task, if that declares it
    expression   text not null,
    timezone     text not null,
    catch_up     text not null check (catch_up in ('none', 'latest', 'all')),
    queue        text not null,
    priority     integer not null,
    max_attempts integer not null,
    tags         text,
    next_at      text not null,
    last_at      text,                           -- the newest tick that was taken
    task         text not null,
    args         text check (args is null or json_valid(args))  -- null: its task declares it
);
create index @crons_next on @crons (task, next_at) where args is not null;

-- Questions where a running handler is, and what its worker told. A row lives for the seconds that somebody waits.
create table @stacks (
    id          text primary key,
    job_id      integer not null,
    fence       text not null,
    asked_at    text not null,
    answer      text,
    answered_at text
);

-- What operators did, one row a call. It outlives the jobs it is about.
create table @audit (
    id         integer primary key autoincrement,
    at         text not null,
    by         text,
    verb       text not null,
    what       text not null,               -- a name, or a filter
    job_id     integer,                     -- if it was about one job
    parameters text not null,               -- a JSON object
    reason     text,
    changed    integer not null,            -- jobs; or the one queue, task or cron
    asked      integer not null,
    refused    integer not null,
    ended_at   text                         -- null: it is under way, or was cut short
);
create index @audit_job on @audit (job_id, id) where job_id is not null;

-- What opens the HTTP API. Not in `meta`, which everybody reads.
create table @secrets (
    only_row   integer primary key default 1 check (only_row),
    signing    text not null                -- of job tokens, in hexadecimal; made at first use
);
create table @api_keys (
    id         text primary key,
    name       text not null unique,
    role       text not null check (role in ('submitter', 'viewer', 'operator', 'admin')),
    digest     text not null,
    created_at text not null,
    created_by text
);

-- The jobs that a call on many of them changed or asked, one row a chunk: 100,000 jobs are some 200 rows.
create table @audit_jobs (
    audit_id integer not null,
    first_id integer not null,              -- the smallest and the largest of its ids: few rows are looked into
    last_id  integer not null,
    job_ids  text not null                  -- a JSON array
);
create index @audit_jobs_call on @audit_jobs (audit_id);
create index @audit_jobs_range on @audit_jobs (last_id, first_id);

-- Calls on many jobs that are under way, by their ids in `audit`. When its holder goes silent, a worker carries a call on.
create table @bulk_calls (
    id        integer primary key,
    plan      text not null,             -- what to do, as JSON (holdfast/store/bulk_calls.py)
    holder    text not null,             -- who performs it: random
    seen_at   text not null,
    reached   integer,                  -- the last job it came to
    remaining integer                   -- jobs left of a limited number; null: all that are left
);

-- The user's tables that are worked as queues (holdfast/store/adopted.py).
create table @sources (
    name        text primary key,
    mapping     text not null,               -- a JSON object
    suspended   integer not null default 0,
    refused     text,                        -- why it can't be worked
    swept_to    text,                        -- the id up to which its rows have been looked at
    swept_at    text                         -- when that last reached the end
);
