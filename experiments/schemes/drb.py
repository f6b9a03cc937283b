"""Digit-reversal bouncing (Cao et al., CoNEXT 2013): the sender selects the core switch of each packet, the receiver
resequences.

It needs IP in IP at hosts and core switches and a resequencing buffer below TCP, which only the simulator has.
"""

from experiments.schemes.scheme import Fabric, Scheme

SCHEME = Scheme(
    "drb",
    "the sender selects the core switch of each packet by IP in IP, the receiver resequences",
    fabric=Fabric.SIMULATOR,
)
