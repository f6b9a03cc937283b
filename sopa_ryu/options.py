"""The controller's options: group `sopa` of oslo.config, --sopa-k on the command line or [sopa] in a --config-file."""

import logging
import socket
from collections.abc import Sequence
from dataclasses import Field, dataclass, fields, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

from oslo_config import cfg

from flowrules.label import Carrier
from sopa_ryu.fabric.suspects import SuspectPolicy
from sopa_ryu.runtime.clients import Network, network, normal_origin
from sopa_ryu.runtime.option_fields import REQUIRED, option
from topologies import Clos, FatTree, Host, TopologyError, fabric_file
from topologies.identity import PREFIX6
from topologies.structure import MAX_K, MIN_K

LOG = logging.getLogger("sopa")

GROUP = "sopa"


class OptionError(ValueError):
    """An option has an invalid value; the text is for the operator."""


def _number_or_text(value: object) -> object:
    """Convert a number; leave other text, for which `Settings` has a better error message than oslo.config."""
    text = str(value).strip()
    return int(text) if text.isascii() and text.lstrip("-").isdigit() else text


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def _seconds(default: float, text: str, more: str = "") -> Any:
    return option(default, f"{text} (default {{default:g}}{more})", min=0.0, metavar="SECONDS")


@dataclass(frozen=True)
class ClusterSettings:
    """The options of a cluster of controllers, unchecked but for what needs no code of it."""

    # fmt: off
    engine: str = option(REQUIRED, "etcd that several controllers share, as etcd://HOST:PORT,HOST:PORT,HOST:PORT[/NAME]. One of "
        "them leads, the others stand by. NAME tells clusters on one etcd apart, sopa by default (default: this is the only "
        "controller)", name="cluster", metavar="ETCD")
    member: str = option(REQUIRED, "name of this controller in the cluster (default: the host's name)", name="cluster-member",
        metavar="NAME")
    url: str | None = option(None, "URL under which relays, other controllers and operators reach this controller's REST (default: "
        "http or https, --wsapi-host and --wsapi-port)", name="cluster-url", metavar="URL")
    lease: int = option(2, "how long the leader may be silent before another takes its place. etcd does not go below its own "
        "election time (default {default})", name="cluster-lease", min=1, max=60, metavar="SECONDS")
    ca: Path | None = option(None, "certificate, in PEM, of etcd's authority. etcd is then used over TLS (default: no TLS)",
        name="cluster-ca", metavar="FILE", read=_path)
    cert: Path | None = option(None, "certificate, in PEM, that is shown to etcd (default: none)", name="cluster-cert",
        metavar="FILE", read=_path)
    key: Path | None = option(None, "its private key, in PEM", name="cluster-key", metavar="FILE", read=_path)
    user: str | None = option(None, "user of etcd (default: none)", name="cluster-user", metavar="NAME")
    password_file: Path | None = option(None, "file with the user's password", name="cluster-password-file", metavar="FILE",
        read=_path)
    # fmt: on

    def __post_init__(self) -> None:
        """Raise `OptionError` if two options do not fit together."""
        _check_pair("cluster-cert", self.cert, "cluster-key", self.key)
        _check_pair("cluster-user", self.user, "cluster-password-file", self.password_file)


@dataclass(frozen=True)
class Settings:
    """The options of group `sopa`."""

    # fmt: off
    k: int = option(4, f"ports of each switch in the fat-tree, an even number from {MIN_K} to {MAX_K} (default {{default}})",
        kind=cfg.Opt, type=_number_or_text, metavar="K")
    fabric: Path | None = option(None, "fabric file of a fabric that is no fat-tree of equal links: leaf-spine, oversubscribed, "
        "with absent or slower links, with gateways. sopa fabric check FILE explains it (default: the fat-tree of k)",
        metavar="FILE", read=Path)
    prefix6: str = option(str(PREFIX6), "the /48 of the hosts' IPv6 addresses, where the fabric file has no prefix6. none: IPv4 "
        "only, and half as many flow entries (default {default})", metavar="PREFIX")
    carrier: Carrier = option(Carrier.MAC, "where agents write the label. mac: the Ethernet source address. option: an IPv4 "
        "option as in the paper. id: the address once for a whole burst. srv6: the destination of an outer IPv6 header, for "
        "routers (no-switches). option and id require a program at the edge switches' host ports (sopa parser). Flow entries are "
        "the same (default {default})", metavar="CARRIER")
    settle: float = _seconds(10.0, "after a start, how long to wait since the last switch that has connected, until the "
        "others count as failed. The wait ends when all have connected, and at the latest 0.05 s for each switch of the fabric "
        "later. Meanwhile hosts and switches keep the paths and rules of an earlier controller")
    no_switches: bool = option(False, "wait for no switch after a start. The network's switches are not SOPA's: hosts and drains "
        "alone say what is excluded (default: agents are sent nothing before a switch has connected)")
    hold_down: float = _seconds(2.0, "how long a restored link or switch stays excluded from the candidate paths. It is doubled "
        "each time the element fails again soon")
    hold_down_max: float = _seconds(60.0, "the longest hold-down")
    lldp_interval: float = _seconds(10.0, "interval of link discovery: every port between switches sends an LLDP probe that checks "
        "the cabling", ", off with 0")
    ovsdb: tuple[str, ...] = option((), "OVSDB address of Open vSwitch, to enable BFD there, which detects silent and one-way "
        "loss: unix:PATH or tcp:HOST:PORT. tcp:*:PORT is the address from which each switch connects. May be repeated (default: "
        "none)", metavar="ADDRESS")
    no_label: tuple[str, ...] = option((), "a host, as h0_0_2 or 10.0.0.2, that may not choose paths. Its packets are hashed per "
        "flow, with or without a label. May be repeated (default: none)", metavar="HOST")
    stats_interval: float = _seconds(5.0, "interval at which each switch's port statistics are polled, for the links' rates and "
        "/metrics", ", off with 0")
    rule_check_interval: float = _seconds(180.0, "interval at which each switch's flow entries and groups are read and compared "
        "with its rules, one switch at a time. What another program has changed is put right", ", off with 0")
    link_mbit: float | None = option(None, "capacity of every link in each direction, in Mbit/s (default: what the fabric file "
        "says, or the speed that its port reports)", kind=cfg.FloatOpt, metavar="MBIT")
    tls_cert: Path | None = option(None, "certificate, in PEM, for REST, page and the agents' channel, which then use TLS only "
        "(default: none)", metavar="FILE", read=_path)
    tls_key: Path | None = option(None, "its private key, in PEM", metavar="FILE", read=_path)
    host_tokens_only: bool = option(False, "accept an agent only with the token of its host, which sopa token derives from "
        "agent-secret in the state directory. agent-token, which opens the channel of every host, is rejected then (default: both "
        "are accepted)")
    read_token: bool = option(False, "require a token for reads, too: REST, the page's data and /metrics. A token of role read is "
        "sufficient, as from sopa token --operator NAME --role read (default: reads need no token)")
    bind_certificates: bool = option(False, "accept a switch only with a certificate whose common name or subjectAltName is its "
        "name (e0_0) or datapath id (16 hexadecimal digits). It requires OpenFlow over TLS with ca_certs (default: any "
        "certificate of the authority)")
    client_connections: int = option(128, "connections that one client address may have to REST without a token. Agents count "
        "until they have shown theirs (default {default})", min=1, metavar="N")
    proxy: tuple[Network, ...] = option((), "address or prefix, as 192.0.2.7 or 192.0.2.0/24, that stands for many clients. It "
        "alone has no limit of connections. May be repeated (default: none)", metavar="ADDRESS", read=network)
    origin: tuple[str, ...] = option((), "origin under which browsers open the page, as http://controller.example:8080, if it is "
        "not http(s)://ADDRESS:PORT of the controller. May be repeated (default: none)", metavar="URL", read=normal_origin)
    suspect: SuspectPolicy = option(SuspectPolicy.WARN, "what happens to a link of which probes say that it loses packets. warn: "
        "a line in the log. drain: it is drained until an operator restores it (default {default})", metavar="POLICY")
    suspect_loss: float = option(0.05, "the least loss of a suspect link (default {default:g})", metavar="PERCENT")
    insecure: bool = option(False, "do not warn at the start about ports that the options leave open. Use this in a lab only "
        "(default: one warning for each)")
    state_dir: Path = option(Path("/var/lib/sopa"), "directory of drains and tokens. Each controller needs its own (default "
        "{default})", metavar="DIR", read=Path)
    # fmt: on
    cluster: ClusterSettings | None = None

    def __post_init__(self) -> None:
        """Raise `OptionError` if a value is invalid, or two options contradict each other."""
        if not 0 < self.suspect_loss <= 100:
            raise OptionError(f"suspect-loss must be a percentage above 0, not {self.suspect_loss:g}")
        _check_pair("tls-cert", self.tls_cert, "tls-key", self.tls_key)
        if self.link_mbit is not None and not self.link_mbit > 0:
            raise OptionError(f"link-mbit must be above 0, not {self.link_mbit:g}")
        if self.hold_down_max < self.hold_down:
            raise OptionError(f"hold-down-max ({self.hold_down_max:g}) must not be below hold-down ({self.hold_down:g})")
        if self.carrier is Carrier.SRV6 and not self.no_switches:
            raise OptionError("carrier srv6 is for routers, which the controller does not command: set no-switches, too")
        if self.cluster is not None and self.no_switches:
            raise OptionError(
                "no-switches and cluster exclude each other: a version of a cluster's fabric follows from what its switches say"
            )
        _ = self.unlabelled

    @cached_property
    def tree(self) -> Clos:
        """The fabric."""
        try:
            return self.read_fabric()
        except TopologyError as error:
            raise OptionError(str(error)) from None

    def read_fabric(self) -> Clos:
        """Return the fabric as its file is now, if it has one; `TopologyError` if that cannot be used."""
        prefix6 = None if self.prefix6 == "none" else self.prefix6
        return FatTree(self.k, prefix6) if self.fabric is None else fabric_file.load(self.fabric, prefix6)

    def reread(self) -> Clos:
        """Return the fabric as its file is now; `TopologyError` or `OptionError` if a start could not use it."""
        return replace(self).tree

    @cached_property
    def unlabelled(self) -> frozenset[Host]:
        """The hosts that may not choose paths, by `no_label` and by the fabric file."""
        tree = self.tree
        try:
            return tree.no_label | set(map(tree.host_called, self.no_label))
        except (TopologyError, ValueError) as error:
            raise OptionError(f"no-label: {error}") from None

    @property
    def tls(self) -> tuple[Path, Path] | None:
        """Certificate and key, if there are any."""
        return None if self.tls_cert is None or self.tls_key is None else (self.tls_cert, self.tls_key)


def _check_pair(name: str, value: object, other: str, its: object) -> None:
    if (value is None) != (its is None):
        raise OptionError(f"{name} and {other} belong together: give both, or neither")


def _name(of: Field[Any]) -> str:
    return str(of.metadata.get("name", of.name)).replace("_", "-")


def opts(settings: type) -> list[cfg.Opt]:
    """Return oslo.config's options of a dataclass; `{default}` in a help is the default."""
    return [_opt(each) for each in fields(settings) if each.metadata]


def _opt(of: Field[Any]) -> cfg.Opt:
    arguments, default = dict(of.metadata), None if of.default is REQUIRED else of.default
    kinds = {bool: cfg.BoolOpt, int: cfg.IntOpt, float: cfg.FloatOpt, tuple: cfg.MultiStrOpt}
    kind = arguments.pop("kind", kinds.get(type(default), cfg.StrOpt))
    arguments["help"] = arguments["help"].format(default=default)
    for own in ("name", "read"):
        arguments.pop(own, None)
    return kind(_name(of), default=str(default) if isinstance(default, StrEnum | Path) else default, **arguments)


_GROUP = cfg.OptGroup(GROUP, title="SOPA options")
_OPTIONS = [*opts(Settings), *opts(ClusterSettings)]


def register_group(conf: cfg.ConfigOpts, group: cfg.OptGroup, options: Sequence[cfg.Opt]) -> None:
    """Register a group of options in `conf`, unless it is registered already.

    Before the command line is parsed the options become command-line options. Afterwards (the controller was not started by
    sopa_ryu.manager) they can still be set in a configuration file.
    """
    if group.name in conf:
        return
    conf.register_group(group)
    try:
        conf.register_cli_opts(options, group=group)
    except cfg.ArgsAlreadyParsedError:
        conf.register_opts(options, group=group)


def register(conf: cfg.ConfigOpts) -> None:
    """Register group `sopa` in `conf`, as `register_group` does."""
    register_group(conf, _GROUP, _OPTIONS)


def settings(conf: cfg.ConfigOpts) -> Settings:
    """Return the checked options; `OptionError` if a value is invalid or two options contradict each other."""
    register(conf)
    group = conf[GROUP]
    if group.fabric is not None and conf.get_location("k", GROUP).location is not cfg.Locations.opt_default:
        raise OptionError("k and fabric exclude each other: a fabric file has all numbers of the fabric")
    if group.suspect == "fail":
        raise OptionError(
            "suspect must not be fail any more: use drain, which excludes the link until sopa restore, or warn; hosts leave "
            "bad paths by themselves"
        )
    cluster = None
    if group.cluster is not None:
        of_cluster = values(ClusterSettings, group)
        cluster = ClusterSettings(**of_cluster | {"member": of_cluster["member"] or socket.gethostname()})
    return Settings(**values(Settings, group), cluster=cluster)


def warn_of_unknown(conf: cfg.ConfigOpts) -> None:
    """Log the names in the files' section [sopa] that are no options, which oslo.config ignores."""
    known = {each.dest for each in _OPTIONS}
    for file in conf.config_file or ():
        sections: dict[str, dict[str, list[str]]] = {}
        cfg.ConfigParser(Path(file).expanduser(), sections).parse()
        for name in sorted(sections.get(GROUP, {}).keys() - known):
            LOG.warning(
                "%s in section [sopa] of %s is no option and has no effect. Names have underscores, as in deploy/sopa.conf. "
                "CHANGELOG.md says what replaces an option that was removed",
                name,
                file,
            )


def values(settings: type, group: cfg.ConfigOpts.GroupAttr) -> dict[str, Any]:
    """Return the fields of a dataclass of options, by their names; `OptionError` if one cannot be read."""
    return {each.name: _value(each, group[_name(each).replace("-", "_")]) for each in fields(settings) if each.metadata}


def _value(of: Field[Any], given: Any) -> Any:
    if isinstance(of.default, StrEnum):
        if given not in list(type(of.default)):
            *others, last = type(of.default)
            raise OptionError(f"{_name(of)} must be {', '.join(others)} or {last}, not {given}")
        return type(of.default)(given)
    read = of.metadata.get("read")
    try:
        if isinstance(of.default, tuple):
            return tuple(map(read, given)) if read else tuple(given)
        return given if read is None or given is None else read(given)
    except ValueError as error:
        raise OptionError(f"{_name(of)}: {error}") from None
