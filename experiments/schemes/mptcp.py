"""Multipath TCP with 8 subflows over ECMP (Raiciu et al., SIGCOMM 2011, section 4), the kernel's own."""

from experiments.schemes.scheme import Scheme

SCHEME = Scheme("mptcp", "the kernel's multipath TCP, 8 subflows over ecmp", subflows=8)
