"""What the paper of Multi-Channel Scatter compares it with (section VI.A), besides multipath TCP: in the simulator only."""

from experiments.schemes.scheme import Fabric, Scheme

SCHEMES = (
    Scheme("ecmp-vcc", "ecmp with the window control of MCS alone, its paper's baseline", channels=1, fabric=Fabric.SIMULATOR),
    Scheme("per-packet", "round-robin over all paths, a reorder buffer at the receiver, and DCTCP", fabric=Fabric.SIMULATOR),
)  # fmt: skip
