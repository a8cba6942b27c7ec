"""What a job is: plain values and pure functions. No SQL, no clock, no processes."""
