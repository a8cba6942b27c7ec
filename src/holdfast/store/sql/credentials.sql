-- What opens the HTTP API: the secret that signs job tokens, and API keys.

-- name: signing_secret
select signing from @secrets

-- name: add_signing_secret
-- The first one stays: others may have signed with it.
insert into @secrets (only_row, signing) values (true, :signing)
on conflict do nothing

-- name: add_api_key
insert into @api_keys (id, name, role, digest, created_at, created_by)
values (:id, :name, :role, :digest, @clock, :by)
on conflict do nothing
returning id

-- name: api_key
select name, role, digest, created_at, created_by from @api_keys where id = :id

-- name: api_keys
select name, role, created_at, created_by from @api_keys order by name

-- name: delete_api_key
delete from @api_keys where name = :name
returning id
