"""Measurements of the product itself."""
