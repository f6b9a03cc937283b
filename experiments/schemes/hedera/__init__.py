"""Hedera (Al-Fares et al., NSDI 2010): ECMP for short flows; the controller places each elephant on a path of its own."""

from pathlib import Path

from experiments.schemes.scheme import Scheme

OPTIONS_FILE = Path(__file__).with_name("hedera_options.py")
"""Passed to Ryu's ``--user-flags``, which registers the options before the command line is parsed."""

_APPLICATION = ("experiments.schemes.hedera.app",)
# The paper polls every 5 s at 1 Gbit/s. Links of the lab are slower by two orders of magnitude, and its runs take seconds.
_OPTIONS = ("--user-flags", str(OPTIONS_FILE), "--hedera-interval=1")

SCHEMES = (
    Scheme(
        "hedera",
        "ecmp; the controller places flows above a tenth of a link on paths with room (Global First Fit)",
        applications=_APPLICATION,
        controller_options=_OPTIONS,
    ),
    Scheme(
        "hedera-annealing",
        "hedera with Simulated Annealing",
        applications=_APPLICATION,
        controller_options=(*_OPTIONS, "--hedera-placement=simulated-annealing"),
    ),
)
