create table if not exists analysis_jobs (
    id text primary key default (
        lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-' ||
              substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
    created_at timestamp not null default (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    updated_at timestamp not null default (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    status text not null default 'queued' check (status in ('queued', 'running', 'done', 'failed')),
    input_type text not null check (input_type in ('url', 'text', 'image')),
    input_value text not null,
    normalized_input text not null,
    cache_key text not null unique,
    job_token text not null default (
        lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-' ||
              substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
    attempts int not null default 0,
    claimed_at timestamp,
    claim_id text,
    last_error_code text,
    last_error_message text,
    perplexity_latency_ms int,
    bs_score numeric(3, 1),
    result_json json,
    model_used text,
    request_id text
);

create index if not exists analysis_jobs_claim on analysis_jobs (status, claimed_at);
create index if not exists analysis_jobs_token on analysis_jobs (job_token);
create index if not exists analysis_jobs_created on analysis_jobs (created_at);
