"""A private Open vSwitch: a database and a switch daemon in a directory, without a system service.

With ``dummy=True`` it has no data plane: bridges and ports are objects in the daemon's memory behind a real OpenFlow agent, so
that it runs without namespaces, and hundreds of switches cost little.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from topologies import ovsdb
from topologies.fabric_plan import PREFIXES
from topologies.lab.isolation import die_with_parent, require
from topologies.lab.startable import Startable, log_tail
from topologies.structure import Clos, Switch

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
START_SECONDS = 60.0
DATABASE_SECONDS = 120.0
STOP_SECONDS = 5.0
OPENFLOW = "OpenFlow13"
SWITCH_PRIORITY = -10

_VARIABLES = ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR")


class OvsError(RuntimeError):
    """Open vSwitch did not start, or refused a command; the text has its output."""


class PrivateOvs(Startable):
    """A database and a switch daemon in a directory, as a context manager.

    While it is entered, the ``OVS_*DIR`` variables of this process contain the directory, so that Mininet and every
    ``ovs-*`` command use it. Both daemons are killed if the thread that entered it ends.

    Args:
        directory: For the database, sockets, pid files and logs, which stay there. It is created if it is missing.
        dummy: Replace every datapath and port type by the dummy one.

    Raises:
        MissingCommandError, OvsError: On entering, if Open vSwitch is not installed, or a daemon does not start (with its log).
    """

    def __init__(self, directory: Path, dummy: bool = False) -> None:
        self.directory = Path(directory).absolute()
        self.dummy = dummy
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._environment: dict[str, str | None] = {}

    @property
    def database(self) -> str:
        """The database's address, as for `topologies.ovsdb.transact`."""
        return f"unix:{self.directory}/db.sock"

    def pid(self, daemon: str = "ovs-vswitchd") -> int:
        return self._daemons[daemon].pid

    def stop(self) -> None:
        """Stop both daemons, by SIGKILL after `STOP_SECONDS`, and restore the environment. It can be called again."""
        for name in ("ovs-vswitchd", "ovsdb-server"):
            daemon = self._daemons.pop(name, None)
            if daemon is None:
                continue
            daemon.terminate()
            try:
                daemon.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for variable, value in self._environment.items():
            if value is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = value
        self._environment = {}

    def restart(self) -> None:
        """Kill the switch daemon and start it again: it creates every bridge of the database, without any flow entry."""
        daemon = self._daemons["ovs-vswitchd"]
        daemon.kill()
        daemon.wait()
        self._start_switch()

    def vsctl(self, *args: str, timeout: float = DATABASE_SECONDS) -> str:
        """Run ``ovs-vsctl`` and return its output; raise `OvsError` if it fails."""
        return _run("ovs-vsctl", f"--db={self.database}", f"--timeout={timeout:.0f}", *args)

    def transact(self, operations: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Run operations on the database in one transaction (`ovsdb.transact`), without waiting for the switch daemon.

        For thousands of rows: ``ovs-vsctl`` takes quadratic time for them. `OvsError` if the database refuses it.
        """
        try:
            return ovsdb.transact(self.database, operations, DATABASE_SECONDS)
        except ovsdb.OvsdbError as error:
            raise OvsError(str(error)) from error

    def ofctl(self, *args: str, stdin: str | None = None) -> str:
        """Run ``ovs-ofctl`` with OpenFlow 1.3; arguments as in a shell."""
        return _run("ovs-ofctl", "-O", OPENFLOW, *args, stdin=stdin, directory=self.directory)

    def appctl(self, *args: str) -> str:
        """Give the switch daemon a command, as ``ovs-appctl`` does, without a process for it: tests trace thousands of packets."""
        try:
            return ovsdb.control(f"{self.directory}/ovs-vswitchd.{self.pid()}.ctl", *args)
        except ovsdb.OvsdbError as error:
            raise OvsError(f"{' '.join(args)[:200]}: {error}") from error

    def start(self) -> None:
        """Start both daemons with an empty database (done on entering)."""
        require("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._environment = {name: os.environ.get(name) for name in _VARIABLES}
        os.environ.update(dict.fromkeys(_VARIABLES, str(self.directory)))
        file = self.directory / "conf.db"
        file.unlink(missing_ok=True)
        _run("ovsdb-tool", "create", str(file), str(SCHEMA))
        # further addresses and certificates from the database (ovs-vsctl set-manager, set-ssl), as distributions configure it
        columns = {"private-key": "private_key", "certificate": "certificate", "ca-cert": "ca_cert"}
        options = [f"--{option}=db:Open_vSwitch,SSL,{column}" for option, column in columns.items()]
        options.append("--remote=db:Open_vSwitch,Open_vSwitch,manager_options")
        self._spawn("ovsdb-server", str(file), f"--remote=p{self.database}", *options)
        self._await("ovsdb-server", "--no-wait", "init")
        self._start_switch()

    def _start_switch(self) -> None:
        arguments = ["--enable-dummy=override"] if self.dummy else []
        self._spawn("ovs-vswitchd", self.database, *arguments)
        self._await("ovs-vswitchd", "set", "Open_vSwitch", ".", "external_ids:private=true")

    def _spawn(self, name: str, *args: str) -> None:
        log = self.directory / f"{name}.log"
        parent = os.getpid()

        def prepare() -> None:
            die_with_parent(parent)
            _prefer()
            # each port needs one or two open files
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

        with (self.directory / f"{name}.err").open("wb") as errors:
            self._daemons[name] = subprocess.Popen(
                [name, *args, f"--log-file={log}", f"--pidfile={self.directory / name}.pid", "-vconsole:off"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C at the terminal must not reach them
                preexec_fn=prepare,
            )

    def _await(self, name: str, *command: str) -> None:
        """Repeat an ovs-vsctl command, which waits for the daemon to apply it, until it succeeds."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            problem = ""
            if self._daemons[name].poll() is None:
                try:
                    # not --retry, which waits a second after the first refusal
                    self.vsctl(*command, timeout=5)
                    return
                except OvsError as error:
                    problem = str(error)
                    time.sleep(0.01)
            exited = self._daemons[name].poll()
            if exited is not None:
                problem = f"it exited with status {exited}"
            if exited is not None or time.monotonic() > deadline:
                logs = log_tail(self.directory / f"{name}.err", self.directory / f"{name}.log")
                raise OvsError(f"{name} did not start: {problem}\n{logs}")


class DummyFabric:
    """Every switch of a fat-tree as a dummy bridge of a private Open vSwitch: real OpenFlow agents without packets.

    Bridges, ports (``e0_0-eth1``), their numbers and datapath ids are the fabric's. The ports are not connected to one
    another.

    Args:
        ovs: Entered, with ``dummy=True``; `OvsError` if it refuses the bridges.
        controller: The controller's address, such as ``"tcp:127.0.0.1:6653"``.
        switches: Those of its switches that there are; all by default.
    """

    def __init__(
        self, tree: Clos, ovs: PrivateOvs, controller: str | None = None, switches: Iterable[Switch] | None = None
    ) -> None:
        if not ovs.dummy:
            raise ValueError("a DummyFabric needs PrivateOvs(..., dummy=True)")
        self.tree = tree
        self.ovs = ovs
        self.controller = controller
        self._switches = tree.switches() if switches is None else switches
        ovs.transact(self._rows())
        ovs.vsctl("set", "Open_vSwitch", ".", "external_ids:fabric=dummy", timeout=600)  # waits for the switch daemon

    def interface(self, switch: Switch, port: int) -> str:
        """Return a port's interface name: ``e0_0-eth1``."""
        self.tree.neighbour(switch, port)
        return f"{self.tree.name(switch)}-eth{port}"

    def set_port(self, switch: Switch, port: int, up: bool) -> None:
        """Unplug or plug a port's cable: the switch sends PORT_STATUS."""
        self.ovs.appctl("netdev-dummy/set-admin-state", self.interface(switch, port), "up" if up else "down")

    def trace(self, switch: Switch, flow: str) -> str:
        """Return the output of ``ofproto/trace`` for a flow such as ``in_port=1,ip,nw_dst=10.0.1.2``."""
        return self.ovs.appctl("ofproto/trace", self.tree.name(switch), flow)

    def connected(self) -> int:
        found = self.ovs.vsctl("--bare", "--columns=_uuid", "find", "Controller", "is_connected=true")
        return len(found.split())

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Yield the database operations that add every bridge."""
        bridges = []
        rows, tracked = ovsdb.flow_tables(PREFIXES)
        yield from rows
        for switch in self._switches:
            name = self.tree.name(switch)
            ports = [ovsdb.insert("Interface", f"{name}_i", name=name, type="internal")]
            ports.append(ovsdb.insert("Port", f"{name}_p", name=name, interfaces=["named-uuid", f"{name}_i"]))
            for port in self.tree.ports(switch):
                ids, interface = f"{name}_{port}", self.interface(switch, port)
                ports.append(ovsdb.insert("Interface", f"{ids}_i", name=interface, type="dummy", ofport_request=port))
                ports.append(ovsdb.insert("Port", f"{ids}_p", name=interface, interfaces=["named-uuid", f"{ids}_i"]))
            yield from ports
            bridge = ovsdb.insert(
                "Bridge",
                f"{name}_b",
                name=name,
                datapath_type="dummy",
                fail_mode="secure",
                protocols=OPENFLOW,
                other_config=ovsdb.mapping(
                    {"datapath-id": f"{self.tree.dpid(switch):016x}", "disable-in-band": "true", "dp-desc": name}
                ),
                ports=ovsdb.named(row["uuid-name"] for row in ports if row["table"] == "Port"),
                flow_tables=tracked,
            )
            if self.controller is not None:
                yield ovsdb.insert("Controller", f"{name}_c", target=self.controller, max_backoff=1000)
                bridge["row"]["controller"] = ["named-uuid", f"{name}_c"]
            yield bridge
            bridges.append(bridge["uuid-name"])
        yield {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["bridges", "insert", ovsdb.named(bridges)]]}


def _prefer() -> None:
    """Raise this process's scheduling priority: the hosts' computation must not slow down the switches between them.

    Traffic generators that spin while they wait, as iperf3's client before its test starts, would otherwise use the time that
    the switches need.
    """
    with contextlib.suppress(OSError):  # not root: a dummy datapath works without it
        os.setpriority(os.PRIO_PROCESS, 0, SWITCH_PRIORITY)
        # with autogrouping the processes of a session compete as one group, and the effective priority is the group's (sched(7))
        Path("/proc/self/autogroup").write_text(str(SWITCH_PRIORITY))


def _run(*command: str, stdin: str | None = None, directory: Path | None = None) -> str:
    """Run a command; with a directory against the Open vSwitch there, whichever was entered last."""
    environment = None if directory is None else os.environ | dict.fromkeys(_VARIABLES, str(directory))
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip()
        shown = " ".join(command[:8]) + (" ..." if len(command) > 8 else "")
        raise OvsError(f"{shown}: {output or f'exit status {done.returncode}'}")
    return done.stdout
