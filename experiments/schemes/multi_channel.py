"""Multi-Channel Scatter (Li, Bi, Wang, IFIP Networking 2017) and what its paper compares it with (section VI.A).

A shim at both hosts scatters the packets of a connection over channels, filters duplicate acknowledgements, moves traffic away from
channels with ECN marks, and limits the receive window as DCTCP would. TCP at the hosts is unchanged.
"""

from experiments.schemes.scheme import Fabric, Scheme

SCHEMES = (
    Scheme("mcs", "MCS with candidate paths as channels, by default 8", policy="mcs", channels=8, fabric=Fabric.SIMULATOR),
    Scheme("mcs-ports", "MCS over ecmp, as in its paper: a channel is another source port, by default 8",
           policy="mcs", channels=8, fabric=Fabric.SIMULATOR),
    Scheme("ecmp-vcc", "ecmp with the window control of MCS alone, its paper's baseline", channels=1, fabric=Fabric.SIMULATOR),
    Scheme("per-packet", "round-robin over all paths, a reorder buffer at the receiver, and DCTCP", fabric=Fabric.SIMULATOR),
)  # fmt: skip
