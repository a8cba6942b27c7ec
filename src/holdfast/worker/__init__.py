"""How jobs get done: the worker, its one loop, and the threads that keep its leases."""
