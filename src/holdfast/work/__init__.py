"""How jobs get done: processes, threads, time, signals."""
