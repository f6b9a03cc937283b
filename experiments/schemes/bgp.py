"""What operators run today: eBGP on every link, multipath, L4 hash, BFD (Lapukhov et al., RFC 7938), on Linux and FRR.

Linux's own L4 hash (policy 1) takes over the hash that a packet brings along, and one from a socket of the same machine has one:
here that makes all routers choose alike, so that half of the core switches carry nothing. Routers of several machines hash for
themselves, as they do here with the custom hash (policy 3) over addresses, protocol and ports, each with a seed of its own.
"""

from experiments.schemes.scheme import Fabric, Scheme

_OWN_HASH = {"ipv4/fib_multipath_hash_policy": "3", "ipv4/fib_multipath_hash_fields": "55"}
_HANDED_ON = {"ipv4/fib_multipath_hash_policy": "1"}

SCHEMES = (
    Scheme("bgp", "Linux routers with FRR: eBGP multipath, one path per flow by L4 hash",
           fabric=Fabric.ROUTERS, router_sysctls=_OWN_HASH),
    Scheme("bgp-polarised", "the same with a hash that all routers share",
           fabric=Fabric.ROUTERS, router_sysctls=_HANDED_ON),
)  # fmt: skip
