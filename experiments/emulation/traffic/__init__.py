"""Traffic between the hosts of a lab: the TCP transfers of a plan, and a UDP stream."""
