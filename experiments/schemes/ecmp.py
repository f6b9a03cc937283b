"""Equal-cost multi-path: each switch hashes addresses and ports of a flow, differently at each level. Hosts have no agent."""

from experiments.schemes.scheme import Scheme

SCHEME = Scheme("ecmp", "one path per flow; switches hash addresses and ports")
