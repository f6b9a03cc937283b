"""``make fuzz``: garbled input and peers that lie, for controllers, agents, the eBPF programs and the arbiter's library.

A run prints its seed; ``--seed`` repeats the input. The first failure ends it, of a peer with the shortest sequence of its
steps that does harm.
"""

import random
import subprocess
import sys
from typing import TextIO

import click

from tests.fuzz import clients, database, engine, prober, switch
from tests.fuzz.channels import LyingAgent, LyingArbiter, LyingRelay
from tests.fuzz.peers import PeerKind, campaign, replay

PEERS = {
    "agents": PeerKind(clients.AGENTS, clients.GarblingClient.start),
    "rest": PeerKind(clients.REST, clients.GarblingClient.start),
    "lldp": PeerKind(clients.LLDP, clients.GarblingClient.start),
    "switch": PeerKind(switch.plan, switch.LyingSwitch.start),
    "ovsdb": PeerKind(database.plan, database.LyingDatabase.start),
    "etcd": PeerKind(engine.plan, engine.LyingEtcd.start),
    "agent": PeerKind(LyingAgent.plan, LyingAgent.start),
    "relay": PeerKind(LyingRelay.plan, LyingRelay.start),
    "arbiter-channel": PeerKind(LyingArbiter.plan, LyingArbiter.start),
    "prober": PeerKind(prober.plan, prober.LyingHost.start),
}
PROGRAMS = {name: f"tests.bpf.{module}" for name, module in (("programs", "fuzz"), ("mcs", "mcs_fuzz"), ("probes", "probe_fuzz"))}
PROGRAMS["arbiter"] = "tests.arbiter.fuzz"
"""Modules that fuzz eBPF programs and the arbiter's library, which need no controller."""


@click.command()
@click.argument("kinds", nargs=-1, type=click.Choice([*PEERS, *PROGRAMS]))
@click.option("--seconds", type=click.FloatRange(1), default=60.0, show_default=True, help="Time for each kind.")
@click.option("--seed", type=int, help="Seed of the input; a random one by default.")
@click.option("--packets", type=click.IntRange(1), default=100_000, show_default=True, help="Packets for the programs.")
@click.option("--replay", "file", type=click.File(), help="Play the steps of a file, a line each, for one kind of peer.")
def main(kinds: tuple[str, ...], seconds: float, seed: int | None, packets: int, file: TextIO | None) -> None:
    """Send garbled input to a running controller, have peers lie, and send packets through the eBPF programs (root).

    \b
    agents     messages and frames of agents
    rest       requests                   lldp      frames at switch ports
    switch     a switch that lies to three controllers in OpenFlow
    ovsdb      a switch's database that lies to the set-up checker and the keeper of BFD
    etcd       an etcd that loses, repeats, reorders and delays, and has foreign values, of three controllers
    agent, relay, arbiter-channel         peers of the leader that lie, each with its own token
    prober     a host that lies in its answers to probes, in simulated time
    programs   packets through the eBPF programs, each compared with a reference
    mcs        packets of a few connections through those of MCS, in the same way
    probes     probes and answers through the program that turns them round, in the same way
    arbiter    demands and failures for the arbiter's library; packets are cells with a slot and a path, each checked
    """
    seed = random.randrange(1 << 31) if seed is None else seed
    if file is not None and (len(kinds) != 1 or kinds[0] not in PEERS):
        raise click.UsageError(f"--replay is for one kind of {', '.join(PEERS)}")
    click.echo(f"seed {seed}")
    try:
        for kind in kinds or (*PEERS, *PROGRAMS):
            if file is not None:
                click.echo(f"nothing found; {replay(PEERS[kind], file.read().splitlines())}")
            elif kind in PEERS:
                click.echo(campaign(kind, PEERS[kind], seed, seconds))
            else:
                command = [sys.executable, "-m", PROGRAMS[kind], f"--packets={packets}", f"--seed={seed}"]
                subprocess.run(command, check=True)
    except AssertionError as error:
        click.echo(f"FAILED: {error}", err=True)
        sys.exit(1)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)


if __name__ == "__main__":
    main()
