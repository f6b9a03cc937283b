"""MCS at a host: a connection's packets are scattered over channels."""
