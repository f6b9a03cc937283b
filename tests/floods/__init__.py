"""Floods by clients without a token, and what they must not do to a controller: ``make flood``."""
