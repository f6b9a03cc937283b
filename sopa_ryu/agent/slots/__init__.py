"""Congestion-free routing at a host: demands, grants and the gate."""
