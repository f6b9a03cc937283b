"""Digit-reversal bouncing (Cao et al., CoNEXT 2013): the sender chooses each packet's core switch, the receiver puts them in order.

It needs IP in IP at hosts and core switches, and a resequencing buffer below TCP: in the simulator only.
"""

from experiments.schemes.scheme import Fabric, Scheme

SCHEME = Scheme(
    "drb", "the sender picks each packet's core switch by IP in IP, the receiver resequences", fabric=Fabric.SIMULATOR
)
