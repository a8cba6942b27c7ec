update @meta set filter_version = :version
