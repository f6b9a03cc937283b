"""Which links lose packets: who probes what, and what the reports of all hosts say together (docs/probes.md)."""
