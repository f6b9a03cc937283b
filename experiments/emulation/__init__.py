"""Workloads on real switches and hosts: Open vSwitch or Linux routers, and Linux TCP, in the namespaces of a lab."""
