"""Parameters of a lab's links, and lines for ``tc -batch`` that set them: rate, queue and egress filters. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from topologies.cabling import ABSENT, Rate
from topologies.structure import Clos

HOPS = 5  # switches of a path between pods
_HOPS_IN_POD = 3
FRAME_BYTES = 1514  # a full Ethernet frame as a queueing discipline counts it
LATE_SECONDS = 0.004  # a tick of the scheduler at 250 Hz

_CLEAN_MBIT_AT_16_HOSTS = 4.0
_CLEAN_SECONDS = 20e-6  # `calibration.seconds_per_packet` of the machine on which that was measured
_MAX_MBIT = 40.0
_MAX_KERNEL_MBIT = 1000.0
_MIN_MBIT = 0.1
# The kernel forwards on all processors, and not in a thread that looks at every port; but each hop's rate is a timer there, too.
_KERNEL_SHARE = 0.1
_BFD_MS_MIN = 100  # Open vSwitch's minimum
_BFD_SESSIONS_AT_MIN = 64
_MUCH_SLOWER = 1.5

# Order of an interface's egress filters. clsact and its filters stay when Open vSwitch adds and removes interfaces.
# PREF_BAD is that of grey links (experiments/emulation/bad_links.py): what they lose must not have been redirected before.
_PREF_SILENT, PREF_BAD, _PREF_CONTROL = 1, 2, 3
# u32 matches: LLDP; UDP to BFD's port in an IPv4 packet without options and with a TTL of 255 (RFC 5881, section 5)
_CONTROL = (
    "0x88cc u32 match u32 0 0",
    "ip u32 match ip ihl 5 0xf match u8 255 0xff at 8 match ip protocol 17 0xff match ip dport 3784 0xffff",
)
# Classic BPF of one instruction that returns a verdict. A stolen packet counts as sent; a dropped one is an error for its sender.
_STOLEN, _NEXT_FILTER = 4, 2**32 - 1


def default_rate(tree: Clos) -> float:
    """Return a link rate in Mbit/s that leaves the processor idle time, so that results show the fabric and not the machine.

    One thread forwards for every switch, and its limit is packets times hops per second. With 16 sending hosts and five hops it
    keeps up with 4 Mbit/s links (measured on 2 cores), so the rate of hosts' links is inversely proportional to the number of hosts
    and to that of a path's switches, and 40 at most. It is the same on every machine: `calibrated_rate` is for the one at hand.
    """
    return min(_MAX_MBIT, _CLEAN_MBIT_AT_16_HOSTS * 16 / tree.host_count * HOPS / _hops(tree))


def _hops(tree: Clos) -> int:
    """Return the number of switches of the longest path."""
    if tree.pods > 1:
        return HOPS
    return _HOPS_IN_POD if tree.edges > 1 else 1


def at_rate(tree: Clos, rate_mbit: float) -> Clos:
    """Return the fabric with the rates of a lab: hosts' links have ``rate_mbit``, and all others are in proportion.

    Where the fabric has no rates, all levels of links have the same. The names of `Clos.mbit` and of single links stay.

    >>> fabric = Clos(1, 2, 2, 0, 4, mbit={"host": 10_000, "edge": 40_000}, links={"e0_1-a0_1": 20_000})
    >>> lab = at_rate(fabric, 4.0)
    >>> lab.capacity(lab.link_by_name("e0_0-a0_0")), lab.capacity(lab.link_by_name("e0_1-a0_1"))
    (16.0, 8.0)
    """
    document = tree.document()
    factor = rate_mbit / tree.level_rate("host")
    rates: dict[str, Rate] = document.get("links", {})
    document["links"] = {name: ABSENT if rate == ABSENT else factor * float(rate) for name, rate in rates.items()}
    document["mbit"] = {level: factor * tree.level_rate(level) for level in tree.link_levels}
    lab = Clos(**document)
    lab.aliases = tree.aliases
    return lab


def calibrated_rate(tree: Clos, seconds_per_packet: float, kernel: bool = False, processors: int = 2) -> float:
    """Return the link rate in Mbit/s that leaves a machine at least a quarter of its processors' time while every host sends.

    It has two significant digits, from 0.1 to 40, or to 1000 with the kernel's datapath, which forwards on all processors;
    otherwise one thread of the switch daemon does, and where it has the only processor, half the rate leaves that some time.

    Args:
        seconds_per_packet: Processor time of a packet on a path between pods: `calibration.seconds_per_packet`.

    >>> from topologies import FatTree
    >>> calibrated_rate(FatTree(4), 20e-6), calibrated_rate(FatTree(8), 20e-6), calibrated_rate(FatTree(8), 60e-6)
    (4.0, 0.5, 0.17)
    """
    if kernel:
        packets = _KERNEL_SHARE * processors / seconds_per_packet * HOPS / _hops(tree)
        rate, most = packets * FRAME_BYTES * 8 / 1e6 / tree.host_count, _MAX_KERNEL_MBIT
    else:
        rate, most = default_rate(tree) * _CLEAN_SECONDS / seconds_per_packet * min(1.0, processors / 2), _MAX_MBIT
    return min(most, max(_MIN_MBIT, float(f"{rate:.2g}")))


def bfd_interval_ms(tree: Clos, seconds_per_packet: float = _CLEAN_SECONDS) -> int:
    """Return BFD's transmit interval in ms on every link between switches; three missing packets take a link down.

    One thread of Open vSwitch serves every session, two per link, and for each packet it checks every port. So
    above the 32 links of k=4 the packets per second are constant: 100 ms at k=4, 800 ms at k=8. Under the demo's load (2 cores,
    not idle) k=8 was stable at 800 ms, sometimes late at 500 ms, lost a quarter of its links at 300 ms and all of them at 100 ms.
    A machine that is slower by half or more (``seconds_per_packet``, as of `calibrated_rate`) has as much more time.
    """
    slower = seconds_per_packet / _CLEAN_SECONDS
    interval = _BFD_MS_MIN * 2 * tree.switch_link_count / _BFD_SESSIONS_AT_MIN * (slower if slower >= _MUCH_SLOWER else 1)
    return max(_BFD_MS_MIN, round(interval))


def tbf_burst(rate_mbit: float) -> int:
    """Return the bucket of a link's token bucket filter in bytes: two full frames, and `LATE_SECONDS` of the link's rate.

    A real link is never late. Here a frame waits for the thread that forwards for all switches, and for the kernel's timer; a
    bucket that does not cover that time reduces the link's rate, and a much larger one passes bursts that no link passes. At k=4
    and 4 Mbit/s the demo's mean was 3.51 Mbit/s with one frame (1,600 bytes), 3.55 with two, and 3.65 with four.
    """
    return 2 * FRAME_BYTES + 72 + round(rate_mbit * 1e6 / 8 * LATE_SECONDS)


def shaper(interface: str, rate_mbit: float, queue_packets: int) -> str:
    """Return the line that sets an interface's rate in Mbit/s and its queue in full frames."""
    # Without a size table the kernel counts a packet's bytes before the filters at tc egress, where SRv6 adds 40.
    return (
        f"qdisc replace dev {interface} root handle 1: stab linklayer ethernet tbf rate {round(rate_mbit * 1e6)}bit"
        f" burst {tbf_burst(rate_mbit)} limit {queue_packets * FRAME_BYTES}"
    )


def control_first(interface: str, queue_packets: int) -> Iterator[str]:
    """Yield the lines that send routing messages and routers' errors before everything else in an interface's queue, at its rate.

    Routers and switches mark them as network control, CS6 (RFC 4594, section 3.1), and serve that first. ARP has the same
    priority: a router that has lost its neighbour's address drops the packets that wait for it.
    """
    # The classes only set the order, so their rate is never reached: the token bucket filter above them sets the link's rate.
    yield f"qdisc add dev {interface} parent 1:1 handle 10: htb default 2"
    unlimited = f"htb rate 10gbit burst 1m cburst 1m quantum {FRAME_BYTES}"
    for band in (1, 2):
        yield f"class add dev {interface} parent 10: classid 10:{band} {unlimited} prio {band}"
        yield f"qdisc add dev {interface} parent 10:{band} bfifo limit {queue_packets * FRAME_BYTES}"
    matches = "ip u32 match ip tos 0xc0 0xff", "arp u32 match u32 0 0", "ipv6 u32 match ip6 priority 0xc0 0xfc"
    for pref, match in enumerate(matches, start=1):
        yield f"filter add dev {interface} parent 10: pref {pref} protocol {match} flowid 10:1"


def filters(interface: str) -> str:
    """Return the line that adds the hook for an interface's filters."""
    return f"qdisc add dev {interface} clsact"


def past_the_queue(interface: str, peer: str) -> Iterator[str]:
    """Yield the lines that let BFD and LLDP bypass an interface's queue and its counters.

    A real switch has a separate queue for them. Here they would wait behind a full queue or be dropped there; so they are
    redirected to the peer's ingress, where Open vSwitch receives them.
    """
    for pref, match in enumerate(_CONTROL, start=_PREF_CONTROL):
        yield f"filter add dev {interface} egress pref {pref} protocol {match} action mirred ingress redirect dev {peer}"


def silence(interface: str, silent: bool) -> str:
    """Return the line that drops everything that leaves an interface and counts it as sent, or the line that undoes it."""
    verdict = _STOLEN if silent else _NEXT_FILTER
    return (
        f"filter replace dev {interface} egress pref {_PREF_SILENT} handle 1 protocol all"
        f" bpf direct-action bytecode '1,6 0 0 {verdict}'"
    )
