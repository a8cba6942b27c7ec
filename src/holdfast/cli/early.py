"""Imported before the commands: a worker is to hear signals while it imports them."""

from holdfast.signals import heed_early

heed_early()
