create table if not exists analysis_jobs (
    id uuid primary key default gen_random_uuid(),
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    status text not null default 'queued' check (status in ('queued', 'running', 'done', 'failed')),
    input_type text not null check (input_type in ('url', 'text', 'image')),
    input_value text not null,
    normalized_input text not null,
    cache_key text not null unique,
    job_token uuid not null default gen_random_uuid(),
    attempts int not null default 0,
    claimed_at timestamptz,
    claim_id uuid,
    last_error_code text,
    last_error_message text,
    perplexity_latency_ms int,
    bs_score numeric(3, 1),
    result_json jsonb,
    model_used text,
    request_id text
);

create index if not exists analysis_jobs_claim on analysis_jobs (status, claimed_at);
create index if not exists analysis_jobs_token on analysis_jobs (job_token);
create index if not exists analysis_jobs_created on analysis_jobs (created_at);

-- For the worker that was here before, which may still run beside ours. A claim is dead after ten minutes. Unlike the one
-- it had, this function counts the attempts of dead claims, too: a job that kills its worker is not tried for ever.
create or replace function claim_next_job(p_max_attempts int default 3) returns table (
    id uuid, input_type text, input_value text, normalized_input text, cache_key text, attempts int, request_id text)
language sql as $$
    update analysis_jobs j
       set status = 'running', claimed_at = now(), claim_id = gen_random_uuid(), attempts = j.attempts + 1,
           updated_at = now()
     where j.id = (
           select c.id from analysis_jobs c
            where c.attempts < p_max_attempts
              and (c.status = 'queued' or (c.status = 'running' and c.claimed_at < now() - interval '10 minutes'))
            order by c.created_at limit 1 for update skip locked)
    returning j.id, j.input_type, j.input_value, j.normalized_input, j.cache_key, j.attempts, j.request_id
$$;
