"""BGP as operators run it: eBGP on every link, multipath, L4 hash, BFD (Lapukhov et al., RFC 7938), on Linux and FRR.

The L4 hash of Linux (policy 1) reuses the hash that is stored with a packet, and a packet from a socket of the same
machine has one: in a lab all routers select alike, and half of the core switches carry nothing. Routers on separate
machines hash on their own. The custom hash (policy 3) over addresses, protocol and ports, with a seed per router, does
the same here.
"""

from experiments.schemes.scheme import Fabric, Scheme

OWN_HASH = {"ipv4/fib_multipath_hash_policy": "3", "ipv4/fib_multipath_hash_fields": "55"}
_HANDED_ON = {"ipv4/fib_multipath_hash_policy": "1"}

SCHEMES = (
    Scheme("bgp", "Linux routers with FRR: eBGP multipath, one path per flow by L4 hash",
           fabric=Fabric.ROUTERS, router_sysctls=OWN_HASH),
    Scheme("bgp-polarised", "bgp with one hash that all routers share (polarised)",
           fabric=Fabric.ROUTERS, router_sysctls=_HANDED_ON),
)  # fmt: skip
