create table if not exists audits (
    id text primary key default (
        lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-' ||
              substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
    url text not null,
    status text not null default 'pending' check (status in ('pending', 'processing', 'completed', 'failed')),
    created_at timestamp not null default (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    -- Who goes first. Somebody waits for what a person asked for; the rule for the night is in its statement.
    priority integer not null default 10,
    -- The four columns that made the table a queue.
    processing_started_at timestamp,
    processing_worker_id text,
    last_heartbeat timestamp,
    retry_count integer not null default 0,
    -- What came of it.
    completed_at timestamp,
    error_code text,
    error_message text,
    site text,
    score integer check (score between 0 and 100),
    scores json,
    findings json,
    details json
);

create index if not exists audits_status on audits (status, created_at);
create index if not exists audits_site on audits (site, completed_at);
create index if not exists audits_url on audits (url, created_at);

-- Every broken internal link of an audited site, and a page that has it.
create table if not exists broken_links (
    audit_id text not null references audits on delete cascade,
    url text not null,
    problem text not null,
    found_on text not null,
    pages integer not null,
    primary key (audit_id, url)
);

-- What is audited every night.
create table if not exists sites (url text primary key);
