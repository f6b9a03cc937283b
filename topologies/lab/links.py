"""What a lab's links are made of: a rate and a queue, BFD, and filters on what leaves an interface, as lines for ``tc -batch``.

Pure but for its names: nothing here runs a command.
"""

from __future__ import annotations

from collections.abc import Iterator

from topologies.structure import FatTree

FRAME_BYTES = 1514  # a full Ethernet frame as a queueing discipline counts it
LATE_SECONDS = 0.004  # a tick of the scheduler at 250 Hz

_CLEAN_MBIT_AT_16_HOSTS = 4.0
_BFD_MS_MIN = 100  # Open vSwitch takes no less
_BFD_SESSIONS_AT_MIN = 64

# Order of the filters on what leaves an interface. clsact and its filters stay while Open vSwitch takes and gives up interfaces.
_PREF_SILENT, _PREF_CONTROL = 1, 2
# u32 matches: LLDP; UDP to BFD's port in an IPv4 packet without options that no router has touched (RFC 5881, section 5)
_CONTROL = (
    "0x88cc u32 match u32 0 0",
    "ip u32 match ip ihl 5 0xf match u8 255 0xff at 8 match ip protocol 17 0xff match ip dport 3784 0xffff",
)
# Classic BPF of one instruction, "return this verdict". A stolen packet counts as sent; a dropped one is an error to its sender.
_STOLEN, _NEXT_FILTER = 4, 2**32 - 1


def default_rate(tree: FatTree) -> float:
    """A link rate in Mbit/s that leaves the processor idle time, so that results show the fabric and not the machine.

    One thread forwards for every switch, and its limit is packets times hops a second. With 16 hosts sending at once it
    is clean at 4 Mbit/s links (measured on 2 cores), so the rate goes down as the number of hosts goes up. Smaller fabrics
    get more, 40 at most.
    """
    return min(40.0, _CLEAN_MBIT_AT_16_HOSTS * 16 / tree.host_count)


def bfd_interval_ms(tree: FatTree) -> int:
    """How often BFD sends on every link between switches, in each direction; a link is down when three in a row are missing.

    One thread of Open vSwitch serves every session, two a link and k³ in all, and each packet makes it look at every port. So
    beyond k=4 the packets a second stay the same: 100 ms at k=4, 800 ms at k=8. Under the demo's load (2 cores, others busy
    too) k=8 was stable at 800 ms, late now and then at 500 ms, lost a quarter of its links at 300 ms and all of them at 100 ms.
    """
    return max(_BFD_MS_MIN, round(_BFD_MS_MIN * tree.k**3 / _BFD_SESSIONS_AT_MIN))


def tbf_burst(rate_mbit: float) -> int:
    """The bucket of a link's token bucket filter in bytes: two full frames, and what the link carries in `LATE_SECONDS`.

    A real link is never late. Here a frame waits for the thread that forwards for all switches, and for the kernel's timer;
    a bucket that does not cover that time takes it from the link's rate for good, and one that is much larger lets through
    bursts that no link does. At k=4 and 4 Mbit/s the demo's mean was 3.51 Mbit/s with one frame (1,600 bytes), 3.55 with two,
    and 3.65 with four.
    """
    return 2 * FRAME_BYTES + 72 + round(rate_mbit * 1e6 / 8 * LATE_SECONDS)


def shaper(interface: str, rate_mbit: float, queue_packets: int) -> str:
    """Give an interface a rate and a queue."""
    return (
        f"qdisc replace dev {interface} root handle 1: tbf rate {round(rate_mbit * 1e6)}bit"
        f" burst {tbf_burst(rate_mbit)} limit {queue_packets * FRAME_BYTES}"
    )


def control_first(interface: str, queue_packets: int) -> Iterator[str]:
    """Have what routers say to each other leave before everything else in an interface's queue, at the same rate.

    Routers and switches mark it as network control, CS6 (RFC 4594, section 3.1), and serve that first. ARP goes with it: a router
    that has lost its neighbour's address drops what waits for it.
    """
    # Classes that are never short of rate: the token bucket filter above them has the link's, they have the order alone.
    yield f"qdisc add dev {interface} parent 1:1 handle 10: htb default 2"
    unlimited = f"htb rate 10gbit burst 1m cburst 1m quantum {FRAME_BYTES}"
    for band in (1, 2):
        yield f"class add dev {interface} parent 10: classid 10:{band} {unlimited} prio {band}"
        yield f"qdisc add dev {interface} parent 10:{band} bfifo limit {queue_packets * FRAME_BYTES}"
    for pref, match in enumerate(("ip u32 match ip tos 0xc0 0xff", "arp u32 match u32 0 0"), start=1):
        yield f"filter add dev {interface} parent 10: pref {pref} protocol {match} flowid 10:1"


def filters(interface: str) -> str:
    """Make a place for the filters of an interface."""
    return f"qdisc add dev {interface} clsact"


def past_the_queue(interface: str, peer: str) -> Iterator[str]:
    """Let BFD and LLDP past an interface's queue, and past its counters.

    A real switch has a queue of its own for them. Here they would wait behind as many frames as the link's queue holds, or be
    dropped there; so they are handed to the peer at once, where Open vSwitch finds them as received.
    """
    for pref, match in enumerate(_CONTROL, start=_PREF_CONTROL):
        yield f"filter add dev {interface} egress pref {pref} protocol {match} action mirred ingress redirect dev {peer}"


def silence(interface: str, silent: bool) -> str:
    """Have whatever leaves an interface vanish, or no longer; nobody can tell it from sent."""
    verdict = _STOLEN if silent else _NEXT_FILTER
    return (
        f"filter replace dev {interface} egress pref {_PREF_SILENT} handle 1 protocol all"
        f" bpf direct-action bytecode '1,6 0 0 {verdict}'"
    )
