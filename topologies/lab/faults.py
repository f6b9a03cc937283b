"""Faults of a lab beyond a cut cable (`Lab.set_link`): silent loss, dead switches, swapped cables. Each can be undone.

They are independent of each other and of `Lab.set_link`: when all have been undone, in any order, the lab is healthy.
"""

from __future__ import annotations

from topologies.lab.links import silence
from topologies.lab.network import Lab
from topologies.structure import Clos, Node, Switch, TopologyError


def sending_port(tree: Clos, name: str, towards: str) -> tuple[Switch, int]:
    """Return the switch, and its port, that send what a link between switches carries towards one of its ends.

    Raises `TopologyError` if the fabric has no such link, it is a host's, or ``towards`` is not one of its ends.
    """
    link = tree.link_by_name(name)
    if not isinstance(link.lower, Switch):
        raise TopologyError(f"{name} is a host's link; only links between switches can fail in one direction")
    ends = {tree.name(link.lower): link.upper, tree.name(link.upper): link.lower}
    if towards not in ends:
        raise TopologyError(f"{towards} is not an end of {name}")
    sender = ends[towards]
    return sender, tree.port(sender, tree.switch(towards))


def set_silent(lab: Lab, name: str, towards: str, silent: bool) -> None:
    """Drop all packets towards one end of a link such as ``a0_0-c0_1``, BFD and LLDP included, or stop dropping them.

    The carrier stays up at both ends, no counter counts a loss, and the other direction works unless it is silent too. Errors as of
    `sending_port`.
    """
    switch, port = sending_port(lab.tree, name, towards)
    lab.batch(switch, "tc", [silence(lab.interface(switch, port), silent)])


def set_rate(lab: Lab, name: str, towards: str, share: float) -> None:
    """Let one direction of a link between switches have a share of its rate, or all of it again with 1.

    Errors as of `sending_port` and `Lab.set_share`.
    """
    switch, port = sending_port(lab.tree, name, towards)
    lab.set_share(lab.interface(switch, port), share)


def silence_switch(lab: Lab, name: str, silent: bool) -> None:
    """Silence every link of a switch in both directions, as a power failure looks to its neighbours, or undo it.

    No port loses its carrier and the OpenFlow channel stays open, so that only BFD detects it. Not for edge switches: a host's link
    cannot be silent.
    """
    switch = lab.tree.switch(name)
    for neighbour in lab.tree.ports(switch).values():
        link = lab.tree.name(lab.tree.link(switch, neighbour))
        for towards in (switch, neighbour):
            set_silent(lab, link, lab.tree.name(towards), silent)


def kill_switch(lab: Lab, name: str) -> None:
    """Stop a switch: its OpenFlow channel closes and it forwards nothing, but its neighbours' ports keep their carrier.

    The same as Mininet's ``switch NAME stop`` at the lab's prompt. For a dead switch it does nothing.
    """
    lab.node(lab.tree.switch(name)).stop(deleteIntfs=False)


def restore_switch(lab: Lab, name: str) -> None:
    """Start a dead switch again, without any flow entry; for a living switch do nothing.

    It connects to the controller immediately, before BFD is up on its links.
    """
    if not _lives(lab, name):
        lab.node(lab.tree.switch(name)).start(lab.net.controllers)


def swap_cables(lab: Lab, first: str, second: str) -> None:
    """Exchange the plugs of two cables at their common switch; the same call again undoes it.

    After ``swap_cables(lab, "a0_0-c0_0", "a0_0-c0_1")`` port 3 of a0_0 leads to c0_1 and port 4 to c0_0. The switch's two
    interfaces exchange their OpenFlow port numbers; interfaces and the other ends do not change. So for `Lab.set_link` and
    `set_silent` a link's name still means the same cable. The switch reports both ports as removed and added, and their BFD
    sessions start anew.

    Both are links of one level with one common end, or it is a `TopologyError`; if that is a core switch, they lead to different
    pods.
    """
    links = [lab.tree.link_by_name(name) for name in (first, second)]
    one, other = links
    if one == other or one.upper.level != other.upper.level:
        raise TopologyError(f"{first} and {second} are not two links of the same level")
    if one.upper == other.upper:
        shared, ends = one.upper, [link.lower for link in links]
    elif isinstance(one.lower, Switch) and one.lower == other.lower:
        shared, ends = one.lower, [link.upper for link in links]
    else:
        raise TopologyError(f"{first} and {second} do not end at the same switch")
    _exchange(lab, shared, ends)


def _exchange(lab: Lab, switch: Switch, ends: list[Node]) -> None:
    """Exchange the OpenFlow port numbers of a switch's interfaces to two neighbours, in Mininet too."""
    node = lab.node(switch)
    one, other = (node.nameToIntf[lab.interface(switch, lab.tree.port(switch, end))] for end in ends)
    ports = node.ports
    ports[one], ports[other] = ports[other], ports[one]
    node.intfs.update({ports[one]: one, ports[other]: other})
    if _lives(lab, node.name):
        settings = [["set", "Interface", intf.name, f"ofport_request={ports[intf]}"] for intf in (one, other)]
        lab.ovs.vsctl(*settings[0], "--", *settings[1])
        lab.shape([one.name, other.name])


def _lives(lab: Lab, name: str) -> bool:
    return name in lab.ovs.vsctl("list-br").split()
