"""Garbled input for a running controller: ``make fuzz``."""
