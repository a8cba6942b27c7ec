"""Measures Holdfast on this machine: the raw limits of the database on our own schema, Holdfast, and the ratios.

`run.py` is the table of contents; `python -m bench` runs it. Figures of different runs don't compare, because the speed
of a machine changes from minute to minute. So figures that are compared are measured in turns, three times, and the
medians count. `peers/` measures other job systems in turns with ours. `holdfast bench`, which ships with the package,
is a small version for users' own servers."""
