"""Measures other job systems beside Holdfast, in one go: the same work, the same database server, taking turns."""
