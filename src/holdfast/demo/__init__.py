"""`holdfast demo`: jobs of several kinds, and a worker that is killed while they run."""
