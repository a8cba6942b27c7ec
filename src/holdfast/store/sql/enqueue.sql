-- New jobs, one at a time.

-- name: enqueue
insert into @jobs (@columns(enqueue)) values (@values(enqueue)) returning id

-- name: enqueue_keyed
-- With a key, the unique index decides which of several enqueues at once is the first. No row back: another job holds the
-- key.
insert into @jobs (@columns(enqueue_keyed)) values (@values(enqueue_keyed))
on conflict (task, key) where holds_key do nothing
returning id
