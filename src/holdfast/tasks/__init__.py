"""What users declare: tasks, their signatures, options and resources; and what a handler sees while it runs."""
