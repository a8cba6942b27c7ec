"""Measures this machine: the raw limits of the database on our own schema, Holdfast, and the ratios between them."""
