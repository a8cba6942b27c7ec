-- Take offers back; those that come back were taken by nobody. Who enqueues just now and takes one is waited for. Nor is
-- the disk waited for, as in `offer`.
with withdrawn as (
    delete from @offers where fence = any(:fences::uuid[]) returning fence
)
select fence::text, set_config('synchronous_commit', 'off', true) from withdrawn
