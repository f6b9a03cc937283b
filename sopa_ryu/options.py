"""The controller's options: group `sopa` of oslo.config, --sopa-k on the command line or [sopa] in a --config-file."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from oslo_config import cfg

from flowrules.label import Carrier
from sopa_ryu.runtime.clients import Network, network, normal_origin
from topologies import Clos, FatTree, Host, TopologyError, fabric_file
from topologies.structure import MAX_K, MIN_K

GROUP = "sopa"
DEFAULT_K = 4
SUSPECT_POLICIES = ("warn", "drain")


class OptionError(ValueError):
    """An option has an invalid value; the text is for the operator."""


@dataclass(frozen=True)
class ClusterSettings:
    """The options of a cluster of controllers, unchecked but for what needs no code of it."""

    engine: str
    member: str
    url: str | None = None
    lease: int = 2
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    user: str | None = None
    password_file: Path | None = None


@dataclass(frozen=True)
class Settings:
    """The checked options of group `sopa` with their defaults; the help texts describe them."""

    tree: Clos = field(default_factory=partial(FatTree, DEFAULT_K))
    fabric_file: Path | None = None
    carrier: Carrier = Carrier.MAC
    settle: float = 10.0
    no_switches: bool = False
    hold_down: float = 2.0
    hold_down_max: float = 60.0
    lldp_interval: float = 10.0
    ovsdb: tuple[str, ...] = ()
    state_dir: Path = Path("/var/lib/sopa")
    no_label: frozenset[Host] = frozenset()
    tls: tuple[Path, Path] | None = None
    stats_interval: float = 5.0
    rule_check_interval: float = 180.0
    link_mbit: float | None = None
    host_tokens_only: bool = False
    bind_certificates: bool = False
    client_connections: int = 128
    proxy: tuple[Network, ...] = ()
    origin: tuple[str, ...] = ()
    suspect: str = "warn"
    suspect_loss: float = 0.05
    cluster: ClusterSettings | None = None


def _number_or_text(value: object) -> object:
    """Convert a number; leave other text, for which settings() has a better error message than oslo.config."""
    text = str(value).strip()
    return int(text) if text.isascii() and text.lstrip("-").isdigit() else text


def _seconds(name: str, default: float, text: str, more: str = "") -> cfg.FloatOpt:
    return cfg.FloatOpt(name, default=default, min=0.0, metavar="SECONDS", help=f"{text} (default {default:g}{more})")


_GROUP = cfg.OptGroup(GROUP, title="SOPA options")
_OPTIONS = [
    cfg.Opt(
        "k",
        type=_number_or_text,
        default=DEFAULT_K,
        metavar="K",
        help=f"ports of each switch in the fat-tree, an even number from {MIN_K} to {MAX_K} (default {DEFAULT_K})",
    ),
    cfg.StrOpt(
        "fabric",
        metavar="FILE",
        help="fabric file of a fabric that is no fat-tree of equal links: leaf-spine, oversubscribed, with absent or slower links, "
        "with gateways; sopa fabric check FILE explains it (default: the fat-tree of k)",
    ),
    cfg.StrOpt(
        "carrier",
        default=str(Settings.carrier),
        metavar="CARRIER",
        help="where agents write the label: mac, the Ethernet source address, or option, an IPv4 option as in the paper, which "
        "requires the parser at the edge switches' host ports (sopa parser); the flow entries are the same "
        f"(default {Settings.carrier})",
    ),
    _seconds(
        "settle",
        Settings.settle,
        "after a start, how long to wait, since the last switch that has connected, for others before they count as failed; until "
        "then hosts and switches keep the paths and rules of an earlier controller",
        "; the wait ends when all have connected, and 0.05 s for each switch of the fabric later at the latest",
    ),
    cfg.BoolOpt(
        "no-switches",
        default=Settings.no_switches,
        help="wait for no switch after a start: the network is not SOPA's, and agents with --policy mcs --channel-kind ports only "
        "learn here which hosts run it (default: agents are sent nothing before a switch has connected)",
    ),
    _seconds(
        "hold-down",
        Settings.hold_down,
        "how long a restored link or switch stays excluded from the candidate paths; doubled each time it fails again soon",
    ),
    _seconds("hold-down-max", Settings.hold_down_max, "the longest hold-down"),
    _seconds(
        "lldp-interval",
        Settings.lldp_interval,
        "interval of link discovery: every port between switches sends an LLDP probe that checks the cabling",
        "; 0: off",
    ),
    cfg.MultiStrOpt(
        "ovsdb",
        default=[],
        metavar="ADDRESS",
        help="OVSDB address of Open vSwitch, to enable BFD there, which detects silent and one-way loss: unix:PATH, "
        "tcp:HOST:PORT, or tcp:*:PORT for the address from which each switch connects; may be repeated (default: none)",
    ),
    cfg.MultiStrOpt(
        "no-label",
        default=[],
        metavar="HOST",
        help="a host, as h0_0_2 or 10.0.0.2, that may not choose paths: its packets are hashed per flow, with or without a label; "
        "may be repeated (default: none)",
    ),
    _seconds(
        "stats-interval",
        Settings.stats_interval,
        "interval at which each switch's port statistics are polled, for the links' rates and /metrics",
        "; 0: off",
    ),
    _seconds(
        "rule-check-interval",
        Settings.rule_check_interval,
        "interval at which each switch's flow entries and groups are read and compared with its rules, one switch at a time; what "
        "another program has changed is put right",
        "; 0: off",
    ),
    cfg.FloatOpt(
        "link-mbit",
        metavar="MBIT",
        help="capacity of every link in each direction, in Mbit/s (default: what the fabric file says, or the speed that its port "
        "reports)",
    ),
    cfg.StrOpt(
        "tls-cert",
        metavar="FILE",
        help="certificate, in PEM, for REST, page and the agents' channel, which then use TLS only (default: none)",
    ),
    cfg.StrOpt("tls-key", metavar="FILE", help="its private key, in PEM"),
    cfg.BoolOpt(
        "host-tokens-only",
        default=Settings.host_tokens_only,
        help="accept an agent only with the token of its host, which sopa token derives from agent-secret in the state directory; "
        "agent-token, which opens the channel of every host, is rejected then (default: both are accepted)",
    ),
    cfg.BoolOpt(
        "bind-certificates",
        default=Settings.bind_certificates,
        help="accept a switch only with a certificate whose common name or subjectAltName is its name (e0_0) or datapath id (16 "
        "hexadecimal digits); requires OpenFlow over TLS with ca_certs (default: any certificate of the authority)",
    ),
    cfg.IntOpt(
        "client-connections",
        default=Settings.client_connections,
        min=1,
        metavar="N",
        help="connections that one client address may have to REST without a token; agents count until they have shown theirs "
        f"(default {Settings.client_connections})",
    ),
    cfg.MultiStrOpt(
        "proxy",
        default=[],
        metavar="ADDRESS",
        help="address or prefix, as 192.0.2.7 or 192.0.2.0/24, that stands for many clients: no limit of connections for it alone; "
        "may be repeated (default: none)",
    ),
    cfg.MultiStrOpt(
        "origin",
        default=[],
        metavar="URL",
        help="origin under which browsers open the page, if it is not http(s)://ADDRESS:PORT of the controller, as "
        "http://controller.example:8080; may be repeated (default: none)",
    ),
    cfg.StrOpt(
        "suspect",
        default=str(Settings.suspect),
        metavar="POLICY",
        help="what happens to a link of which probes say that it loses packets: warn, a line in the log; drain, it is drained "
        f"until an operator restores it (default {Settings.suspect})",
    ),
    cfg.FloatOpt(
        "suspect-loss",
        default=Settings.suspect_loss,
        metavar="PERCENT",
        help=f"the least loss of a suspect link (default {Settings.suspect_loss:g})",
    ),
    cfg.StrOpt(
        "state-dir",
        default=str(Settings.state_dir),
        metavar="DIR",
        help=f"directory of drains and tokens; each controller needs its own (default {Settings.state_dir})",
    ),
    cfg.StrOpt(
        "cluster",
        metavar="ETCD",
        help="etcd that several controllers share, as etcd://HOST:PORT,HOST:PORT,HOST:PORT[/NAME]: one of them leads, the others "
        "stand by; NAME tells clusters on one etcd apart, sopa by default (default: this is the only controller)",
    ),
    cfg.StrOpt(
        "cluster-member", metavar="NAME", help="name of this controller in the cluster (default: the host's name)"
    ),
    cfg.StrOpt(
        "cluster-url",
        metavar="URL",
        help="URL under which relays, other controllers and operators reach this controller's REST (default: http or https, "
        "--wsapi-host and --wsapi-port)",
    ),
    cfg.IntOpt(
        "cluster-lease",
        default=ClusterSettings.lease,
        min=1,
        max=60,
        metavar="SECONDS",
        help="how long the leader may be silent before another takes its place; etcd does not go below its own election time "
        f"(default {ClusterSettings.lease})",
    ),
    cfg.StrOpt(
        "cluster-ca",
        metavar="FILE",
        help="certificate, in PEM, of etcd's authority; etcd is then used over TLS (default: no TLS)",
    ),
    cfg.StrOpt("cluster-cert", metavar="FILE", help="certificate, in PEM, that is shown to etcd (default: none)"),
    cfg.StrOpt("cluster-key", metavar="FILE", help="its private key, in PEM"),
    cfg.StrOpt("cluster-user", metavar="NAME", help="user of etcd (default: none)"),
    cfg.StrOpt("cluster-password-file", metavar="FILE", help="file with the user's password"),
]


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
    """Return the checked options.

    Raises:
        OptionError: If a value is invalid or two options contradict each other.
    """
    register(conf)
    carrier = conf[GROUP].carrier
    tree = _tree(conf)
    if carrier not in list(Carrier):
        raise OptionError(f"carrier must be {' or '.join(Carrier)}, not {carrier}")
    group = conf[GROUP]
    if group.suspect == "fail":
        raise OptionError(
            "suspect must not be fail any more: use drain, which excludes the link until sopa restore, or warn; hosts leave bad "
            "paths by themselves"
        )
    if group.suspect not in SUSPECT_POLICIES:
        raise OptionError(f"suspect must be {' or '.join(SUSPECT_POLICIES)}, not {group.suspect}")
    if not 0 < group.suspect_loss <= 100:
        raise OptionError(f"suspect-loss must be a percentage above 0, not {group.suspect_loss:g}")
    if (group.tls_cert is None) != (group.tls_key is None):
        raise OptionError("tls-cert and tls-key belong together: give both, or neither")
    if group.link_mbit is not None and not group.link_mbit > 0:
        raise OptionError(f"link-mbit must be above 0, not {group.link_mbit:g}")
    if group.hold_down_max < group.hold_down:
        raise OptionError(f"hold-down-max ({group.hold_down_max:g}) must not be below hold-down ({group.hold_down:g})")
    return Settings(
        tree=tree,
        fabric_file=Path(group.fabric) if group.fabric is not None else None,
        carrier=Carrier(carrier),
        settle=group.settle,
        no_switches=group.no_switches,
        hold_down=group.hold_down,
        hold_down_max=group.hold_down_max,
        lldp_interval=group.lldp_interval,
        ovsdb=tuple(group.ovsdb),
        state_dir=Path(group.state_dir),
        no_label=tree.no_label | {_host(tree, text) for text in group.no_label},
        tls=(Path(group.tls_cert), Path(group.tls_key)) if group.tls_cert else None,
        stats_interval=group.stats_interval,
        rule_check_interval=group.rule_check_interval,
        link_mbit=group.link_mbit,
        host_tokens_only=group.host_tokens_only,
        bind_certificates=group.bind_certificates,
        client_connections=group.client_connections,
        proxy=tuple(_network(text) for text in group.proxy),
        origin=tuple(_origin(text) for text in group.origin),
        suspect=group.suspect,
        suspect_loss=group.suspect_loss,
        cluster=_cluster(group),
    )


def _cluster(group: cfg.ConfigOpts.GroupAttr) -> ClusterSettings | None:
    if group.cluster is None:
        return None
    if group.no_switches:
        raise OptionError(
            "no-switches and cluster exclude each other: a version of a cluster's fabric follows from what its switches say"
        )
    if (group.cluster_cert is None) != (group.cluster_key is None):
        raise OptionError("cluster-cert and cluster-key belong together: give both, or neither")
    if (group.cluster_user is None) != (group.cluster_password_file is None):
        raise OptionError("cluster-user and cluster-password-file belong together: give both, or neither")
    return ClusterSettings(
        engine=group.cluster,
        member=group.cluster_member or socket.gethostname(),
        url=group.cluster_url,
        lease=group.cluster_lease,
        ca=_path(group.cluster_ca),
        cert=_path(group.cluster_cert),
        key=_path(group.cluster_key),
        user=group.cluster_user,
        password_file=_path(group.cluster_password_file),
    )


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _tree(conf: cfg.ConfigOpts) -> Clos:
    file = conf[GROUP].fabric
    if file is not None and conf.get_location("k", GROUP).location is not cfg.Locations.opt_default:
        raise OptionError("k and fabric exclude each other: a fabric file has all numbers of the fabric")
    try:
        return FatTree(conf[GROUP].k) if file is None else fabric_file.load(Path(file))
    except TopologyError as error:
        raise OptionError(str(error)) from None


def _network(text: str) -> Network:
    try:
        return network(text)
    except ValueError as error:
        raise OptionError(f"proxy: {error}") from None


def _origin(text: str) -> str:
    try:
        return normal_origin(text)
    except ValueError as error:
        raise OptionError(f"origin: {error}") from None


def _host(tree: Clos, text: str) -> Host:
    try:
        return tree.host_by_ip(text) if "." in text else tree.host(text)
    except (TopologyError, ValueError) as error:
        raise OptionError(f"no-label: {error}") from None
