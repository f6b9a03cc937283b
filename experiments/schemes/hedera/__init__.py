"""Hedera (Al-Fares et al., NSDI 2010): hashing for short flows, and a path of its own from the controller for each elephant."""

from pathlib import Path

from experiments.schemes.scheme import Scheme

OPTIONS_FILE = Path(__file__).with_name("hedera_options.py")
"""For Ryu's ``--user-flags``, which makes the options known before the command line is read."""

_APPLICATION = ("experiments.schemes.hedera.app",)
# The paper looks every 5 s at links of 1 Gbit/s; the lab's are slower by two orders of magnitude, and its runs are seconds long.
_OPTIONS = ("--user-flags", str(OPTIONS_FILE), "--hedera-interval=1")

SCHEMES = (
    Scheme(
        "hedera",
        "ecmp, and the controller moves flows above a tenth of a link to paths where they fit (Global First Fit)",
        applications=_APPLICATION,
        controller_options=_OPTIONS,
    ),
    Scheme(
        "hedera-annealing",
        "the same by Simulated Annealing",
        applications=_APPLICATION,
        controller_options=(*_OPTIONS, "--hedera-placement=simulated-annealing"),
    ),
)
