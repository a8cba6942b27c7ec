-- The newest job before this id: where ids are sparse, a walk leaps over the gap.
select max(id) as id from @jobs where id < :before
