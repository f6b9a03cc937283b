"""The host agent: labels packets in eBPF at tc egress, and keeps the path sets and settings that this
needs."""
