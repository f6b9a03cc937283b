"""Alerts of the shipped rules, as Prometheus gives them for a lab."""
