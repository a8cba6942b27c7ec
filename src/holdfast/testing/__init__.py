"""For users' tests: a throw-away store, `run_due()`, a clock to move. The real SQLite engine and the real worker, in
the test's own process; no second implementation of anything."""

from holdfast.testing.clock import Clock
from holdfast.testing.kit import Kit, Ran, store

__all__ = ["Clock", "Kit", "Ran", "store"]
