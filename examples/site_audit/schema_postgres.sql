create table if not exists audits (
    id uuid primary key default gen_random_uuid(),
    url text not null,
    status text not null default 'pending' check (status in ('pending', 'processing', 'completed', 'failed')),
    created_at timestamptz not null default now(),
    -- Who goes first. Somebody waits for what a person asked for; the rule for the night is in its statement.
    priority integer not null default 10,
    -- The four columns that made the table a queue.
    processing_started_at timestamptz,
    processing_worker_id text,
    last_heartbeat timestamptz,
    retry_count integer not null default 0,
    -- What came of it.
    completed_at timestamptz,
    error_code text,
    error_message text,
    site text,
    score integer check (score between 0 and 100),
    scores jsonb,
    findings jsonb,
    details jsonb
);

create index if not exists audits_status on audits (status, created_at);
create index if not exists audits_site on audits (site, completed_at);
create index if not exists audits_url on audits (url, created_at);

-- Every broken internal link of an audited site, and a page that has it.
create table if not exists broken_links (
    audit_id uuid not null references audits on delete cascade,
    url text not null,
    problem text not null,
    found_on text not null,
    pages integer not null,
    primary key (audit_id, url)
);

-- What is audited every night.
create table if not exists sites (url text primary key);
