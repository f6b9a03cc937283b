"""The process itself: garbage collection, limits, and statistics of memory, files and green threads."""
