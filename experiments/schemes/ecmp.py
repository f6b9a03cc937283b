"""Equal-cost multi-path: each switch hashes a flow's addresses and ports, differently at each level; hosts have no agent."""

from experiments.schemes.scheme import Scheme

SCHEME = Scheme("ecmp", "one path per flow, by the switches' hash of addresses and ports")
