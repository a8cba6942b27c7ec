-- Extend the leases we hold; only ever forward. A lease that ran out but was not rescued is still ours.
update @leases set expires_at = greatest(expires_at, @after(lease)), held = :held
 where fence = any(:fences::uuid[])
returning fence
