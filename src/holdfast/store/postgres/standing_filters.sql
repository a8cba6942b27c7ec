-- The pauses by filter in force, and the version of all of them, which a claim tells as well. One row at least.
select m.filter_version as version, p.name, extract(epoch from p.until - @now)::float8 as ends_in
  from @meta m left join @pauses p on p.kind = 'filter' and @stands(p)
 order by p.name
