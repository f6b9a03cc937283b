"""Garbled input, and peers that lie: ``make fuzz``."""
