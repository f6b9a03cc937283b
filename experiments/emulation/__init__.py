"""Workloads run for real: Open vSwitch or Linux routers, Linux TCP, in the lab's namespaces."""
