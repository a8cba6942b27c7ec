select store_id, version, oldest_code from @meta
