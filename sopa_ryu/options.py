"""The controller's own options: oslo.config's group `sopa`, as in --sopa-k, or [sopa] in a --config-file."""

from dataclasses import dataclass

from oslo_config import cfg

from topologies import FatTree, TopologyError
from topologies.fattree import MAX_K, MIN_K

GROUP = "sopa"
CARRIERS = ("mac", "option")


class OptionError(ValueError):
    """An option has a value that the controller cannot work with. The message is for the operator."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of group `sopa`, checked."""

    k: int
    carrier: str


def _number_or_text(value: object) -> object:
    """Keep what is no number as it is: settings() then says what is wrong better than oslo.config does."""
    text = str(value).strip()
    return int(text) if text.isascii() and text.lstrip("-").isdigit() else text


_GROUP = cfg.OptGroup(GROUP, title="SOPA options")
_OPTIONS = [
    cfg.Opt(
        "k",
        type=_number_or_text,
        default=4,
        metavar="K",
        help=f"ports of each switch in the fat-tree, an even number from {MIN_K} to {MAX_K} (default 4)",
    ),
    cfg.StrOpt(
        "carrier",
        default="mac",
        metavar="CARRIER",
        help="where a packet carries its path: mac, the sender's Ethernet source address, or option, an IPv4 "
        "option as in the paper (default mac)",
    ),
]


def register(conf: cfg.ConfigOpts) -> None:
    """Make the group known to `conf`. Harmless when it is known already.

    Before the command line is parsed the options become command-line options; afterwards (the controller was
    started by something other than sopa_ryu.manager) they can still come from a configuration file.
    """
    if GROUP in conf:
        return
    conf.register_group(_GROUP)
    try:
        conf.register_cli_opts(_OPTIONS, group=_GROUP)
    except cfg.ArgsAlreadyParsedError:
        conf.register_opts(_OPTIONS, group=_GROUP)


def settings(conf: cfg.ConfigOpts) -> Settings:
    """Return the checked options, or raise OptionError."""
    register(conf)
    k, carrier = conf[GROUP].k, conf[GROUP].carrier
    try:
        FatTree(k)
    except TopologyError as error:
        raise OptionError(str(error)) from None
    if carrier not in CARRIERS:
        raise OptionError(f"carrier must be {' or '.join(CARRIERS)}, not {carrier}")
    if carrier != "mac":
        raise OptionError(f"the {carrier} carrier is not built yet: use mac")
    return Settings(k=k, carrier=carrier)
