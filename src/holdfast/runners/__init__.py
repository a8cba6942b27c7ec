"""Where handlers run: in this process, in pooled processes, or in a process each."""
