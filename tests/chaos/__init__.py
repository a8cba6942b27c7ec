"""A fault campaign: real workers under a mixed load and seeded faults, judged by a checker that imports nothing of
Holdfast. `python -m tests.chaos --help`; `make chaos`."""
