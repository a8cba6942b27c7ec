-- Extend the leases we hold; only ever forward. A lease that ran out but was not rescued is still ours.
update @leases set expires_at = max(expires_at, @after(lease)), held = :held
 where fence in (select value from json_each(:fences))
returning fence
