"""Packets that a hostile root on a host may send: everything that a switch or a controller might take for its own."""

import re
import subprocess
from collections.abc import Iterator
from itertools import product
from typing import Any

from tests.helpers.fabrics import packet
from topologies import Host

DENIED = [
    *(f"udp,udp_dst={port},nw_ttl={ttl}" for port in (3784, 3785, 4784, 6784, 7784, 7785) for ttl in (1, 64, 255)),
    "udp,nw_frag=first,nw_ttl=255",
    "tcp,dl_dst=02:53:4f:50:41:01",
    "udp,dl_dst=02:53:4f:50:41:01,nw_frag=later",
    *(f"tcp,dl_dst=01:80:c2:00:00:{last:02x}" for last in (0x00, 0x02, 0x03, 0x0E, 0x21)),
    "tcp,dl_dst=01:23:20:00:00:01",
    *(f"tcp,nw_dst=10.{address},tcp_dst={port}" for port in (6633, 6640, 6653) for address in ("0.0.1", "2.1.1", "200.0.1")),
    "udp,nw_dst=10.1.0.1,udp_dst=4789",
    "udp,nw_dst={core},udp_dst=6081",
    "dl_type=0x8902",
    "dl_type=0x88cc,dl_dst=01:80:c2:00:00:0e",
    "dl_type=0x8809,dl_dst=01:80:c2:00:00:02",
    *(f"udp6,udp_dst={port},nw_ttl={ttl}" for port in (3784, 7785) for ttl in (64, 255)),
    *(f"{kind},nw_frag=first,nw_ttl=255" for kind in ("udp6", "icmp6")),
    *(f"icmp6,icmpv6_type={kind},icmpv6_code=0,nw_ttl={hops}" for kind in range(133, 138) for hops in (64, 255)),
    *(f"tcp6,dl_dst={mac}" for mac in ("33:33:00:00:00:01", "02:53:4f:50:41:01")),
    *(f"tcp6,ipv6_src={source}" for source in ("::", "::1", "fe80::2", "ff02::1", "fd53:4f50:4100::9", "2001:db8::1")),
    "dl_type=0x8847",
]
BFD_DOWN = f"20400318{1:08x}{0:08x}{100_000:08x}{100_000:08x}{0:08x}"
"""A BFD control packet (RFC 5880, section 4.1) in state Down, with 0 as Your Discriminator."""


def denied(fabric: Any, src: Host, dst: Host) -> Iterator[str]:
    """Yield each packet from one host to another, with a label or not, in a VLAN or not, as Open vSwitch's tools write it."""
    is_both = len(fabric.tree.families) > 1
    for label, text in product((None, (0, 0)), DENIED):
        kind, *words = text.format(core=f"10.{fabric.tree.k}.1.1").split(",")
        its = packet(fabric, src, dst, label, kind if is_both else kind.removesuffix("6"))
        fields = dict(word.split("=") for word in (*its.split(",")[1:], *words))
        if kind.startswith("dl_type") or (kind.endswith("6") and not is_both):  # these have no fields of IP
            fields = {name: value for name, value in fields.items() if name.startswith("dl_") or "udp" in name}
        flow = ",".join([kind, *(f"{name}={value}" for name, value in fields.items())])
        yield from (flow, f"{flow},dl_vlan=7")


def frame(flow: str) -> bytes:
    """Return the frame of a packet, which says what BFD says where it has data."""
    command = ["ovs-ofctl", "compose-packet", flow, BFD_DOWN]
    dump = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return bytes.fromhex("".join(re.findall(r"(?<=[ -])[0-9a-f]{2}\b", dump))).ljust(60, b"\0")
