"""The arbiter of congestion-free routing: slots and paths for the packets of every host."""
