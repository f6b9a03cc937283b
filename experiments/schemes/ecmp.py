"""Equal-cost multi-path: each switch hashes a flow's addresses and ports, differently at each level; hosts have no agent."""

from .model import Scheme

SCHEME = Scheme("ecmp", "one path per flow, by the switches' hash of addresses and ports")
