"""Floods by clients without a token, or with a host's, and what they must not do to a controller: ``make flood``."""
