"""Measures this machine: the raw limits of the database on our own schema, Holdfast, and the ratios between them.

`run.py` is the table of contents. Figures of different runs don't compare (machines breathe), so everything that is
set against something else is measured in turn with it, three times, and the medians count."""
