"""Measurements that need more than Holdfast itself; `holdfast bench` measures us alone."""
