"""Measurements during a run: packets, queue lengths, TCP statistics."""
