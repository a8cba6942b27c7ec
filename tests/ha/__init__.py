"""Past one machine: failover, poolers, networks that go silent, many workers. `make test-ha` runs these."""
