"""TCP settings of all hosts for a scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

from experiments.emulation.dctcp import DCTCP
from experiments.schemes import Scheme
from sopa_ryu.agent.kernel.netns import inside
from topologies import Clos, Host
from topologies.lab.batch_net import run_batch

FIRST_SUBFLOW_PORT = 6001
_SYS = Path("/proc/sys/net")


def sysctls(scheme: Scheme) -> dict[str, str]:
    """Return the settings of the hosts of a scheme under ``/proc/sys/net``.

    ``tcp_no_metrics_save`` keeps a run independent of metrics that TCP stored during the last one. Agents set the
    threshold and the window of the shortest round trip themselves, except with MCS.
    """
    wanted = {"ipv4/tcp_no_metrics_save": "1", "ipv4/tcp_recovery": str(scheme.recovery), **scheme.sysctls}
    if scheme.policy is None or scheme.channels:
        wanted |= {"ipv4/tcp_reordering": str(scheme.fr_threshold), "ipv4/tcp_min_rtt_wlen": str(scheme.min_rtt_window)}
    if scheme.subflows:
        wanted["mptcp/enabled"] = "1"
    if scheme.congestion == DCTCP:
        wanted["ipv4/tcp_ecn"] = "1"  # its own wish comes too late: the route's congestion control opens the connection
    return wanted


def subflow_lines(scheme: Scheme, address: IPv4Address, interface: str) -> list[str]:
    """Return the lines for ``ip -batch`` that configure multipath TCP of a host: as a receiver it announces a port per subflow.

    Each further subflow then has a destination port of its own, so switches hash it separately, and all use the one address that
    the fabric permits.
    """
    if not scheme.subflows:
        return []
    more = scheme.subflows - 1
    lines = ["mptcp endpoint flush", f"mptcp limits set subflow {more} add_addr_accepted {more}"]
    offers = range(FIRST_SUBFLOW_PORT, FIRST_SUBFLOW_PORT + more)
    return lines + [f"mptcp endpoint add {address} port {port} dev {interface} signal" for port in offers]


@contextmanager
def host_settings(tree: Clos, netns: Callable[[Host], str], interface: Callable[[Host], str], scheme: Scheme) -> Iterator[None]:
    """Apply a scheme's settings to all hosts, then restore them. Raises `LabError` if multipath TCP cannot be configured."""
    wanted = sysctls(scheme)
    before: dict[Host, dict[str, str]] = {}
    try:
        for host in tree.hosts():
            if lines := subflow_lines(scheme, tree.ip(host), interface(host)):
                run_batch(["nsenter", f"--net={netns(host)}", "ip", "-batch", "-"], lines)
            with inside(netns(host)):
                before[host] = {name: (_SYS / name).read_text() for name in wanted}
            write_sysctls(netns(host), wanted)
        yield
    finally:
        for host, values in before.items():
            write_sysctls(netns(host), values)


def write_sysctls(netns: str, values: Mapping[str, str]) -> None:
    """Write settings of a network namespace, by their names under ``/proc/sys/net``."""
    with inside(netns):
        for name, value in values.items():
            (_SYS / name).write_text(value)
