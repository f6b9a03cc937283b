"""The whole of SOPA on one machine: the lab's fabric with a controller and an agent for every host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType

from experiments.emulation.processes import AgentProcess, ControllerProcess
from flowrules.label import Carrier
from sopa_ryu.agent import edge_parser
from sopa_ryu.agent.kernel.netns import Interface
from topologies import FatTree, Host
from topologies.lab.network import MANAGEMENT_ROOT, OVS_DIRECTORY, Lab

OPENFLOW_PORT = 6653
REST_PORT = 8080
# Of each host: a lab's hosts have few flows, and 128 hosts share this machine's memory.
FLOWS = 4096
AGENTS_SECONDS = 60.0


class SopaLab:
    """A fabric with controller and agents, ready for traffic, as a context manager; to be used inside `hermetic.isolated`.

    Parameters
    ----------
    tree : FatTree
    rate_mbit : float or None
        Rate of every link in Mbit/s; None for no limit.
    queue_packets : int
        Full-size frames that a link's queue holds.
    say : callable
        Told what is going on, a line at a time.
    agents : bool
        Whether every host gets an agent; without one its packets go unlabelled.
    agent_options, controller_options : sequence of str
        More options for ``sopa agent`` and for ``ryu-manager``.
    bfd : bool
        Whether BFD is on from the start; if not, the controller switches it on.
    directory : Path
        Where the logs and the agents' state files go.
    carrier : Carrier
        Where hosts write the path; with `Carrier.OPTION` the edge switches' ports towards hosts get the parser.

    Attributes
    ----------
    lab : Lab
    controller : ControllerProcess
    agent : AgentProcess or None
        One process that serves every host's namespace.
    """

    def __init__(
        self,
        tree: FatTree,
        rate_mbit: float | None,
        queue_packets: int = 100,
        say: Callable[[str], None] = lambda _line: None,
        agents: bool = True,
        agent_options: Sequence[str] = (),
        controller_options: Sequence[str] = (),
        bfd: bool = True,
        directory: Path = Path("/run/sopa"),
        carrier: Carrier = Carrier.MAC,
    ) -> None:
        self.tree = tree
        self._say = say
        self._agents = agents
        self._agent_options = [f"--carrier={carrier}", *agent_options]
        self.carrier = carrier
        self.directory = directory
        self.lab = Lab(tree, rate_mbit, queue_packets, OPENFLOW_PORT, say, bfd)
        self.controller = ControllerProcess(
            tree.k,
            directory / "controller.log",
            OPENFLOW_PORT,
            REST_PORT,
            rest_host="0.0.0.0",
            options=[
                f"--sopa-ovsdb=unix:{OVS_DIRECTORY}/db.sock",
                f"--sopa-carrier={carrier}",
                *([f"--sopa-link-mbit={rate_mbit:g}"] if rate_mbit is not None else []),
                *controller_options,
            ],
        )
        self.agent: AgentProcess | None = None
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """Where every host of the lab reaches the controller."""
        return f"http://{MANAGEMENT_ROOT}:{REST_PORT}"

    def __enter__(self) -> SopaLab:
        self.directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            self._say("starting the controller")
            stack.enter_context(self.controller)
            stack.enter_context(self.lab)
            self._say("waiting until every switch holds its rules")
            self.controller.wait_connected(self.tree.switch_count)
            if self.carrier is Carrier.OPTION:
                self._say("attaching the parser to the edge switches' host ports")
                for interface in self.host_ports():
                    edge_parser.attach(interface)
            if self._agents:
                self._say(f"starting {self.tree.host_count} agents")
                self.agent = stack.enter_context(self.agent_of(self.tree.hosts()))
                known = partial(self.controller.agents_know, self.tree.host_count)
                self.agent.wait_until(known, f"all {self.tree.host_count} agents had acknowledged", AGENTS_SECONDS)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def host_ports(self) -> Iterator[Interface]:
        """The edge switches' interfaces towards hosts, in the order of the hosts."""
        for host in self.tree.hosts():
            edge = self.tree.edge_of(host)
            yield Interface(self.lab.interface(edge, self.tree.port(edge, host)))

    def agent_of(self, hosts: Iterable[Host], name: str = "agents", options: Sequence[str] = ()) -> AgentProcess:
        """One agent process, not started yet, for some of the hosts; ``name`` is that of its log and its state files' directory."""
        interfaces = [f"{self.lab.interface(host, 0)}@{self.lab.netns(host)}" for host in hosts]
        every = [f"--flows={FLOWS}", f"--state-dir={self.directory / name}", *self._agent_options]
        every.append(f"--token-file={self.controller.agent_token_file}")
        return AgentProcess(interfaces, self.controller.url, self.directory / f"{name}.log", [*every, *options])
