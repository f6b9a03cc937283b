"""The side of the switches: OpenFlow, their rules, link discovery, BFD and port statistics."""
