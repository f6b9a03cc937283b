"""Workloads of host pairs that send continuously: the permutation of the SOPA paper, the FTPs of the PLTS paper. Seeded, pure."""

from __future__ import annotations

import random
from dataclasses import replace
from operator import eq

from experiments.workloads.checks import across, first_across, need_scale, need_transfers, need_two_hosts, smaller
from experiments.workloads.plan import Plan, Scale, Transfer, Workload, WorkloadError
from topologies import Clos, Host

FILE_SHARE = 0.8


def inter_pod_permutation(tree: Clos, seed: int) -> list[tuple[Host, Host]]:
    """Return a random permutation in which every host, by address, sends to one host of another pod and receives from one.

    It is the permutation of the SOPA paper (section 4.3), confined to pairs with (k/2)² candidate paths. In a fabric of one pod
    they are in different racks instead. Raises `WorkloadError` if there is only one rack.
    """
    choose = random.Random(seed)
    senders = list(tree.hosts())
    parts = tree.pods if tree.pods > 1 else tree.edges
    if parts == 1:
        raise WorkloadError(f"a permutation needs two racks or pods, and a {tree.title} has one rack")
    part = len(senders) // parts
    receivers = senders[part:] + senders[:part]
    # Swaps that keep every pair inter-pod reach any such permutation; a few dozen rounds randomize the initial one.
    for _ in range(40 * len(senders)):
        a, b = choose.randrange(len(senders)), choose.randrange(len(senders))
        if across(tree, senders[a], receivers[b]) and across(tree, senders[b], receivers[a]):
            receivers[a], receivers[b] = receivers[b], receivers[a]
    return list(zip(senders, receivers, strict=True))


def permutation(tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan in which every host sends to one host of another pod and receives from one (SOPA paper, section 4.3).

    The flows of the paper have 10 MB each. Here all flows last for the whole run instead: none uses capacity that
    others have already released, and rates are comparable at any time.
    """
    need_scale(scale)
    need_transfers(tree.host_count, "permutation", f"give {smaller(tree)}")
    transfers = tuple(Transfer(src, dst) for src, dst in inter_pod_permutation(tree, seed))
    return Plan(transfers, scale.seconds, traced=(0,))


def permutation_transfers(tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan with the pairs of `permutation`; each transfers what a link carries in 80% of the run.

    At 1 Gbit/s and 0.1 s these are the 10 MB of the paper (section 4.3, figure 11).
    """
    return with_files(permutation(tree, seed, scale), scale)


def permutation_anywhere(tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan in which every host sends a file to one of all others, also of its pod or rack, and receives one.

    It is a matrix as of the Ultra Ethernet reference simulator. Files have the size of those of `permutation_transfers`. Racks and
    pods send unequal shares upwards, so paths between them are harder to fill evenly than with `permutation_transfers`.
    """
    need_scale(scale)
    need_two_hosts(tree, "permutation-anywhere")
    need_transfers(tree.host_count, "permutation-anywhere", f"give {smaller(tree)}")
    senders = list(tree.hosts())
    receivers = senders[:]
    choose = random.Random(f"{seed} anywhere")
    while any(map(eq, senders, receivers)):
        choose.shuffle(receivers)
    transfers = tuple(Transfer(src, dst) for src, dst in zip(senders, receivers, strict=True))
    return with_files(Plan(transfers, scale.seconds, traced=first_across(tree, transfers)), scale)


def tornado_transfers(tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan in which every host sends a file to the one half of all hosts further (REPS, arXiv 2407.21625).

    All hosts of a rack send to one rack, through the same core links. It is the same for all seeds.
    """
    need_scale(scale)
    need_two_hosts(tree, "tornado-transfers")
    need_transfers(tree.host_count, "tornado-transfers", f"give {smaller(tree)}")
    hosts = list(tree.hosts())
    half = len(hosts) // 2
    transfers = tuple(Transfer(src, dst) for src, dst in zip(hosts, hosts[half:] + hosts[:half], strict=True))
    return with_files(Plan(transfers, scale.seconds, traced=first_across(tree, transfers)), scale)


def ftp(tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan in which random pairs of hosts have a sender and a receiver (Dixit et al., SIGCOMM 2011, section 3).

    Half of the hosts are servers, the others clients, and no host has two FTPs: 27 FTPs at k=6. As in the paper, a pair may be in
    one pod or rack. Of an odd number of hosts one stays idle.
    """
    need_scale(scale)
    need_two_hosts(tree, "ftp")
    need_transfers(tree.host_count // 2, "ftp", f"give {smaller(tree)}")
    hosts = list(tree.hosts())
    random.Random(f"{seed} ftp").shuffle(hosts)
    half = len(hosts) // 2
    transfers = tuple(Transfer(server, client) for server, client in zip(hosts[:half], hosts[half : 2 * half], strict=True))
    return Plan(transfers, scale.seconds, traced=first_across(tree, transfers))


def ftp_transfers(tree: Clos, seed: int, scale: Scale) -> Plan:
    """Build a plan with the pairs of `ftp`; each transfers what a link carries in 80% of the run.

    "Each server is a sender or receiver for just one flow": example 1 of the SOPA paper (section 3.2.2), and so its figures 4 and
    6. "The senders and receivers are picked randomly" for figure 11 (section 4.3). At 1 Gbit/s and 0.1 s a transfer has the 10 MB
    of the paper.
    """
    return with_files(ftp(tree, seed, scale), scale)


def with_files(endless: Plan, scale: Scale) -> Plan:
    """Return a plan whose transfers have the size of what a link carries in 80% of the run."""
    size = scale.bytes_of(FILE_SHARE)
    return replace(endless, transfers=tuple(replace(one, bytes=size) for one in endless.transfers))


WORKLOADS = (
    Workload(
        "permutation",
        "every host sends continuously to one of another pod (leaf-spine: rack) and receives from one (SOPA paper, section 4.3)",
        permutation,
        parameters={"flow_sizes": "none: every flow sends until the run is over"},
    ),
    Workload(
        "permutation-transfers",
        "every host sends a file to one of another pod, 10 MB in 0.1 s of 1 Gbit/s (SOPA paper, section 4.3)",
        permutation_transfers,
        parameters={"flow_sizes": f"what a link carries in {FILE_SHARE:.0%} of the run"},
    ),
    Workload(
        "permutation-anywhere",
        "every host sends such a file to one of all others, as in the Ultra Ethernet reference simulator",
        permutation_anywhere,
        parameters={"flow_sizes": f"what a link carries in {FILE_SHARE:.0%} of the run"},
    ),
    Workload(
        "tornado-transfers",
        "every host sends such a file to the one half of all hosts further, so racks send to racks (REPS, arXiv 2407.21625)",
        tornado_transfers,
        parameters={"flow_sizes": f"what a link carries in {FILE_SHARE:.0%} of the run"},
    ),
    Workload(
        "ftp",
        "random pairs: half of the hosts send continuously to the other half (PLTS paper, section 3)",
        ftp,
        parameters={"flow_sizes": "none: every flow sends until the run is over"},
    ),
    Workload(
        "ftp-transfers",
        "the pairs of ftp, each with a file, 10 MB in 0.1 s of 1 Gbit/s (SOPA paper, sections 3.2.2 and 4.3, figures 4, 6 and 11)",
        ftp_transfers,
        parameters={"flow_sizes": f"what a link carries in {FILE_SHARE:.0%} of the run"},
    ),
)
