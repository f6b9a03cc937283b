"""Traffic between the hosts of a lab: the TCP transfers of a plan, iperf3 flows, a UDP stream."""
