"""Imported before the commands, so that a worker reacts to signals while it imports them."""

from holdfast.signals import heed_early

heed_early()
