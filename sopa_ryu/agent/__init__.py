"""The host agent: labels packets in eBPF at tc egress by the path sets that the controller's state leaves."""
