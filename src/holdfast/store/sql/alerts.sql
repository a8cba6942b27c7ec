-- Alerts (holdfast/model/alerts.py). One that stands has no `ended_at`; one that is only being watched, because what it is
-- about has to last, has no `started_at` either. Each of these statements says by the row it returns who was first.

-- name: standing_alerts
select id, name, subject, text, value, started_at from @alerts where ended_at is null order by id

-- name: begin_alert
insert into @alerts (name, subject, text, value, since, started_at)
values (:name, :subject, :text, :value, @clock, case when :at_once then @clock end)
on conflict (name, subject) where ended_at is null do nothing
returning id, name, subject, text, value, started_at, ended_at

-- name: fire_alert
update @alerts set started_at = @clock, text = :text, value = :value
 where id = :id and started_at is null and since <= @after(minus_lasting)
returning id, name, subject, text, value, started_at, ended_at

-- name: end_alert
update @alerts set ended_at = @clock where id = :id and started_at is not null and ended_at is null
returning id, name, subject, text, value, started_at, ended_at

-- name: unwatch_alert
delete from @alerts where id = :id and started_at is null

-- name: alerts
-- Those that stand, then the newest that have ended.
select id, name, subject, text, value, started_at, ended_at from @alerts
 where started_at is not null order by ended_at is not null, id desc limit :limit

-- name: forget_alerts
delete from @alerts where ended_at < @after(minus_kept)
