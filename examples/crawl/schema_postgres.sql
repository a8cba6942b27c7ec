do $$
begin
    create type crawl_status as enum ('pending', 'processing', 'completed', 'failed', 'paused', 'cancelled');
exception when duplicate_object then null;
end
$$;

create table if not exists crawl_jobs (
    id uuid primary key default gen_random_uuid(),
    start_url text not null,
    scope text not null default 'host' check (scope in ('host', 'path', 'domain')),
    max_depth integer check (max_depth >= 0),
    max_pages integer not null default 100000 check (max_pages > 0),
    delay double precision not null default 1.0 check (delay >= 0),
    status crawl_status not null default 'pending',
    created_at timestamptz not null default now(),
    worker_id text,
    last_heartbeat timestamptz,
    retry_count integer not null default 0,
    max_retries integer not null default 3,
    error_message text
);

create index if not exists crawl_jobs_status on crawl_jobs (status, created_at);

create table if not exists crawl_states (
    crawl_id uuid primary key references crawl_jobs (id) on delete cascade,
    total_pending integer default 0
);

create or replace function crawl_jobs_state() returns trigger language plpgsql as $$
begin
    insert into crawl_states (crawl_id) values (new.id);
    return null;
end
$$;

create or replace trigger crawl_jobs_state after insert on crawl_jobs
    for each row execute function crawl_jobs_state();

-- The frontier and what lies behind it: one row for each address of a crawl.
create table if not exists crawl_urls (
    id bigint generated always as identity primary key,
    crawl_id uuid not null references crawl_jobs (id) on delete cascade,
    url text not null,
    asked text, -- if its parameters were found in another order
    host text not null,
    kind text not null check (kind in ('page', 'sitemap')),
    state text not null default 'todo' check (state in ('todo', 'done', 'redirected', 'skipped', 'dead')),
    depth integer not null,
    hops integer not null default 0,
    chain integer not null default 0,
    tries integer not null default 0,
    not_before double precision not null default 0,
    reason text,
    found_on bigint,
    unique (crawl_id, url)
);

create index if not exists crawl_urls_todo on crawl_urls (crawl_id, host, tries, depth, id) where state = 'todo';
create index if not exists crawl_urls_dead on crawl_urls (crawl_id, url) where state = 'dead';

create table if not exists crawl_pages (
    url_id bigint primary key references crawl_urls (id) on delete cascade,
    crawl_id uuid not null,
    url text not null,
    status integer not null,
    content_type text not null,
    title text not null,
    size integer not null,
    sha256 text not null,
    etag text,
    last_modified text,
    nofollow boolean not null,
    body bytea not null,
    fetched_at double precision not null,
    unique (crawl_id, url)
);

create index if not exists crawl_pages_when on crawl_pages (crawl_id, fetched_at);
create index if not exists crawl_pages_url on crawl_pages (url, fetched_at);

create table if not exists crawl_links (
    page_id bigint not null references crawl_pages (url_id) on delete cascade,
    target text not null,
    primary key (page_id, target)
);

create table if not exists crawl_errors (
    id bigint generated always as identity primary key,
    url_id bigint not null references crawl_urls (id) on delete cascade,
    crawl_id uuid not null,
    at double precision not null,
    code text not null,
    message text not null
);

create index if not exists crawl_errors_of on crawl_errors (crawl_id, id);
create index if not exists crawl_errors_url on crawl_errors (url_id);

-- Of all crawls: a host is asked by one of them at a time, whether by http or https.
create table if not exists crawl_hosts (
    host text primary key,
    crawl_id uuid,
    fence uuid,
    last_at double precision not null default 0,
    not_before double precision not null default 0
);

create table if not exists crawl_robots (
    origin text primary key,
    status integer not null,
    body bytea not null,
    until double precision not null
);
