-- Of the pauses in force, when the first ends, when the first by filter ends, whether there are any of those; and the
-- version of the pauses by filter.
select min(until) as ends, min(case when kind = 'filter' then until end) as filter_ends,
       coalesce(max(kind = 'filter'), false) as filter_pauses, (select filter_version from @meta) as filter_version
  from @pauses p where @stands(p)
