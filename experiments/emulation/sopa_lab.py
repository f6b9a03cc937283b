"""The whole of SOPA on one machine: a lab with a controller and an agent for every host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.emulation.host_agents import agent_process
from experiments.emulation.host_sysctls import write_sysctls
from experiments.emulation.processes import AgentProcess, ControllerProcess, ControllerRest, SpreaderProcess
from experiments.emulation.slot_arbiter import ADDRESS, ArbiterProcess
from experiments.schemes.catalogue import OWN_HASH, SEND_BUFFERS
from experiments.schemes.scheme import Slots
from flowrules.label import Carrier
from sopa_ryu.agent.kernel.netns import Interface
from sopa_ryu.agent.label import edge_parser
from topologies import Clos, Host
from topologies.lab.datapath import DatapathKind
from topologies.lab.links import at_rate
from topologies.lab.management import AGENTS_MACHINE, ROOT
from topologies.lab.network import MANAGEMENT_NETWORK, MANAGEMENT_ROOT, OVS_DIRECTORY, Lab
from topologies.lab.routers import RoutedLab

if TYPE_CHECKING:
    from experiments.emulation.cluster_parts import ClusterParts

OPENFLOW_PORT = 6653
REST_PORT = 8080
AGENTS_SECONDS = 300.0


class SopaLab:
    """A fabric with controller and agents, ready for traffic, as a context manager inside `topologies.lab.isolation.isolated`.

    Args:
        rate_mbit: Rate of hosts' links in Mbit/s, as of `Lab`; None for no limit.
        queue_packets: Capacity of the queue of a link in full frames.
        agents: Start an agent for every host that may label. Without one, packets are unlabelled.
        bfd: Enable BFD from the start; otherwise the controller enables it.
        directory: Directory of logs and of state files of agents.
        carrier: With `Carrier.OPTION` the parser is attached to host ports of edge switches, with `Carrier.ID` spreaders; with
            `Carrier.SRV6` switches are Linux routers, which the controller does not know.
        slots: Start an arbiter that grants them to the agents, whose policy is ``cfr``. Links have a rate then.
        controllers: With more than one they are a cluster (`ClusterParts`), and agents connect to it from a machine of its own.
        relays: Relays of the cluster; by default as many as `ClusterParts` has.

    Attributes:
        rest: The controller's REST interface; of a cluster, that of its leader.
        agent: One process for the namespaces of all hosts that have one (``labelling``).
    """

    def __init__(
        self,
        tree: Clos,
        rate_mbit: float | None,
        queue_packets: int = 100,
        say: Callable[[str], None] = lambda _line: None,
        agents: bool = True,
        agent_options: Sequence[str] = (),
        controller_options: Sequence[str] = (),
        bfd: bool = True,
        directory: Path = Path("/run/sopa"),
        carrier: Carrier = Carrier.MAC,
        datapath: DatapathKind = DatapathKind.USER,
        slots: Slots | None = None,
        controllers: int = 1,
        relays: int | None = None,
    ) -> None:
        self.tree = tree
        self.labelling = [host for host in tree.hosts() if host not in tree.no_label]
        self._say = say
        self._agents = agents
        self._agent_options = [f"--carrier={carrier}", *agent_options]
        self.carrier = carrier
        self.directory = directory
        rated = at_rate(tree, rate_mbit) if rate_mbit is not None and {"mbit", "links"} & tree.document().keys() else tree
        self._routed = carrier is Carrier.SRV6
        options = [
            "--sopa-no-switches" if self._routed else f"--sopa-ovsdb=unix:{OVS_DIRECTORY}/db.sock",
            f"--sopa-carrier={carrier}",
            *([f"--sopa-link-mbit={rate_mbit:g}"] if rate_mbit is not None else []),
            *controller_options,
        ]
        self.cluster: ClusterParts | None = None
        self.lab: Lab
        self._controller: ControllerProcess | None = None
        self.rest: ControllerRest
        if controllers > 1:
            self.rest = self.cluster = _cluster(rated, directory, controllers, options, relays)
            self.lab = Lab(tree, rate_mbit, queue_packets, None, say, bfd, datapath, self.cluster.openflow)
            self.lab.beyond = ROOT.network
        else:
            self.rest = self._controller = ControllerProcess(
                rated, directory / "controller.log", OPENFLOW_PORT, REST_PORT, rest_host="0.0.0.0", options=options
            )
            if self._routed:
                self.lab = RoutedLab(tree, rate_mbit, queue_packets, say, OWN_HASH)
            else:
                self.lab = Lab(tree, rate_mbit, queue_packets, OPENFLOW_PORT, say, bfd, datapath)
        self.agent: AgentProcess | None = None
        self.arbiter: ArbiterProcess | None = None
        self.spreaders: SpreaderProcess | None = None
        self._token_file = self.rest.agent_token_file
        if slots is not None and rate_mbit is not None:
            self.arbiter = self._arbiter(slots, rate_mbit)
            self._agent_options.append(f"--arbiter={ADDRESS}")
            self._token_file = self.arbiter.token_file
        self._stack = ExitStack()

    @property
    def controller(self) -> ControllerProcess:
        """The only controller's process. Raises `ValueError` in a cluster, which has several."""
        if self._controller is None:
            raise ValueError("this lab has several controllers: they are parts of its cluster")
        return self._controller

    @property
    def url(self) -> str:
        """URL of the controller for hosts of the lab; of a cluster, that of a part that answers readers now."""
        if self.cluster is not None:
            return self.cluster.reader_url()
        return f"http://{MANAGEMENT_ROOT}:{REST_PORT}"

    def __enter__(self) -> SopaLab:
        self.directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            self._say("starting the controller" if self.cluster is None else "starting etcd and the controllers")
            stack.enter_context(self.cluster or self.controller)
            stack.enter_context(self.lab)
            if not self._routed:
                self._say("waiting until every switch has its rules")
                self.rest.wait_connected(self.tree.switch_count)
            if self.cluster is not None:
                self.cluster.network.lead_to(MANAGEMENT_NETWORK)
                self._say("starting the relays")
                self.cluster.start_relays()
            if self.carrier is Carrier.OPTION:
                self._say("attaching the parser to host ports of edge switches")
                for interface in self.host_ports():
                    edge_parser.attach(interface)
            elif self.carrier is Carrier.ID:
                self._say("starting the spreaders of host ports of edge switches")
                self.spreaders = stack.enter_context(self._spreaders())
            if self.arbiter is not None:
                self._say("starting the arbiter")
                stack.enter_context(self.arbiter)
                for host in self.labelling:
                    write_sysctls(self.lab.netns(host), SEND_BUFFERS)
            if self._agents:
                count = len(self.labelling)
                self._say(f"starting {count} agents")
                self.agent = stack.enter_context(self.agent_of(self.labelling))
                known = partial(self.rest.agents_know, count)
                self.agent.wait_until(known, f"all {count} agents had acknowledged", AGENTS_SECONDS)
                if self.arbiter is not None:
                    self._say("waiting until the arbiter grants slots to every host")
                    self.arbiter.wait_granting(count)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stack.close()

    @property
    def agents_address(self) -> str:
        """Address of the namespace in which the agents' process and the arbiter run, for readers of their metrics."""
        return "127.0.0.1" if self.cluster is None else str(self.cluster.network.address(AGENTS_MACHINE))

    def _arbiter(self, slots: Slots, rate_mbit: float) -> ArbiterProcess:
        if self.cluster is None:
            urls, state_dir, enter = [self.controller.url], self.controller.state_dir, list[str]()
        else:
            urls, state_dir = self.cluster.controller_urls, self.cluster.state_dir
            enter = self.cluster.network.enter(AGENTS_MACHINE)
        return ArbiterProcess(self.tree, urls, state_dir, slots, rate_mbit, self.directory, enter=enter, host=self.agents_address)

    def host_ports(self) -> Iterator[Interface]:
        """Yield the interfaces of edge switches to hosts, in the order of the hosts."""
        for host in self.tree.hosts():
            edge = self.tree.edge_of(host)
            yield Interface(self.lab.interface(edge, self.tree.port(edge, host)))

    def _spreaders(self) -> SpreaderProcess:
        ports: dict[str, list[str]] = {}
        for host in self.tree.hosts():
            edge = self.tree.edge_of(host)
            ports.setdefault(self.tree.name(edge), []).append(self.lab.interface(edge, self.tree.port(edge, host)))
        url = self.rest.url if self.cluster is None else self.cluster.reader_url()
        return SpreaderProcess(self.tree, ports, url, self.directory / "spreaders.log")

    def agent_of(self, hosts: Iterable[Host], name: str = "agents", options: Sequence[str] = ()) -> AgentProcess:
        """Return an agent process, not started, for some hosts. ``name`` is that of its log and its state directory."""
        given = [*self._agent_options, *options]
        if "--policy=mcs" not in given:
            given.insert(0, "--spray=all")  # tests and measurements count paths by datagrams; an option after it wins
        urls: str | list[str] = self.rest.url if self.cluster is None else self.cluster.agent_urls
        enter = [] if self.cluster is None else self.cluster.network.enter(AGENTS_MACHINE)
        return agent_process(self.lab, hosts, urls, self._token_file, self.directory / name, given, enter)


def _cluster(tree: Clos, directory: Path, controllers: int, options: Sequence[str], relays: int | None) -> ClusterParts:
    # here, so that without a cluster nothing of it is loaded
    from experiments.emulation.cluster_parts import RELAYS, ClusterParts

    return ClusterParts(tree, directory, controllers, options, RELAYS if relays is None else relays)
