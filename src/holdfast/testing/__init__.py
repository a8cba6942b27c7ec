"""For users' tests: a temporary store, `run_due()` and a clock to move. It uses the real SQLite engine and the real
worker, in the test's own process; nothing is implemented twice."""

from holdfast.testing.clock import Clock
from holdfast.testing.kit import Kit, Ran, store

__all__ = ["Clock", "Kit", "Ran", "store"]
