"""A demonstration: jobs of several kinds, and a worker that is killed in the middle."""
