"""Path probes of a host, and what it learns from them (docs/probes.md)."""
