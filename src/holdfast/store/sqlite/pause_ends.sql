-- When the next pause ends, the next pause by filter, and whether there is any.
select min(until) as ends, min(case when kind = 'filter' then until end) as filter_ends, max(kind = 'filter') as switched
  from @pauses where until is null or until > @now
