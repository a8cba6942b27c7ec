select min(until) from @pauses where until > @now
