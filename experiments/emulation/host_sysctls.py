"""How TCP is set on every host for one scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

from experiments.schemes import Scheme
from sopa_ryu.agent.kernel.netns import inside
from topologies import FatTree, Host
from topologies.lab.batch_net import run_batch

FIRST_SUBFLOW_PORT = 6001
_SYS = Path("/proc/sys/net")


def sysctls(scheme: Scheme) -> dict[str, str]:
    """What a scheme's hosts have under ``/proc/sys/net``.

    Each run begins without what the last one has learned of its peers (``tcp_no_metrics_save``). An agent sets the threshold
    itself.
    """
    wanted = {"ipv4/tcp_no_metrics_save": "1", "ipv4/tcp_recovery": str(scheme.recovery), **scheme.sysctls}
    if scheme.policy is None:
        wanted["ipv4/tcp_reordering"] = str(scheme.fr_threshold)
    if scheme.subflows:
        wanted["mptcp/enabled"] = "1"
    return wanted


def subflow_lines(scheme: Scheme, address: IPv4Address, interface: str) -> list[str]:
    """What ``ip -batch`` does for a host's multipath TCP: as a receiver it offers a port for each further subflow.

    Each subflow then has a destination port of its own, so that switches hash it by itself, and all have the one address that the
    fabric lets the host use.
    """
    if not scheme.subflows:
        return []
    more = scheme.subflows - 1
    lines = ["mptcp endpoint flush", f"mptcp limits set subflow {more} add_addr_accepted {more}"]
    offers = range(FIRST_SUBFLOW_PORT, FIRST_SUBFLOW_PORT + more)
    return lines + [f"mptcp endpoint add {address} port {port} dev {interface} signal" for port in offers]


@contextmanager
def host_settings(
    tree: FatTree, netns: Callable[[Host], str], interface: Callable[[Host], str], scheme: Scheme
) -> Iterator[None]:
    """Give every host a scheme's settings for the length of a ``with`` block.

    Raises
    ------
    LabError
        If the kernel's multipath TCP cannot be set.
    """
    wanted = sysctls(scheme)
    before: dict[Host, dict[str, str]] = {}
    try:
        for host in tree.hosts():
            if lines := subflow_lines(scheme, tree.ip(host), interface(host)):
                run_batch(["nsenter", f"--net={netns(host)}", "ip", "-batch", "-"], lines)
            with inside(netns(host)):
                before[host] = {name: (_SYS / name).read_text() for name in wanted}
                for name, value in wanted.items():
                    (_SYS / name).write_text(value)
        yield
    finally:
        for host, values in before.items():
            with inside(netns(host)):
                for name, value in values.items():
                    (_SYS / name).write_text(value)
