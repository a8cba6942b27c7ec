"""Where attempts run: an event loop, threads."""
