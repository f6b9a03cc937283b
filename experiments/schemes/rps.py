"""Random packet spraying (Dixit et al., INFOCOM 2013): a random path for each packet, with the default TCP of Linux."""

from experiments.schemes.scheme import Scheme

SCHEME = Scheme("rps", "a random path per packet; threshold 3", policy="random")
