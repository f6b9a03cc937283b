"""Random packet spraying (Dixit et al., INFOCOM 2013): a random path for each packet, and TCP as Linux has it."""

from experiments.schemes.scheme import Scheme

SCHEME = Scheme("rps", "a random path per packet; threshold 3", policy="random")
