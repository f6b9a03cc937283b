"""``sopa fabric``."""
