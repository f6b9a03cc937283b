"""An Open vSwitch of one's own: a database and a switch daemon in a private directory, no system service needed.

With ``dummy=True`` it has no data plane: bridges and ports are objects in the daemon's memory, behind a real OpenFlow agent,
so that it runs anywhere (without namespaces, even without root) and hundreds of switches cost little.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from topologies.fattree import FatTree, Switch
from topologies.hermetic import die_with_parent, require

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
START_SECONDS = 20.0
STOP_SECONDS = 5.0
OPENFLOW = "OpenFlow13"

_VARIABLES = ("OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR")
_ARGUMENT_BYTES = 1_000_000  # of one command line; Linux allows 2 MB with the environment


class OvsError(RuntimeError):
    """Open vSwitch did not start, or refused a command; the message has what it said."""


class PrivateOvs:
    """A database and a switch daemon in a directory, as a context manager.

    While it is entered, the ``OVS_*DIR`` variables of this process name the directory, so that Mininet and every ``ovs-*``
    command use it. Both daemons are killed if the thread that entered it ends.

    Parameters
    ----------
    directory : Path
        Created if missing; holds the database, sockets, pid files and logs, which are left there.
    dummy : bool
        Replace every datapath and port type by the dummy one.

    Raises
    ------
    MissingCommandError
        On entering, if Open vSwitch is not installed.
    OvsError
        On entering, if a daemon does not start; the message has the end of its log.
    """

    def __init__(self, directory: Path, dummy: bool = False) -> None:
        self.directory = Path(directory).absolute()
        self.dummy = dummy
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._environment: dict[str, str | None] = {}

    def __enter__(self) -> PrivateOvs:
        require("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._environment = {name: os.environ.get(name) for name in _VARIABLES}
        os.environ.update(dict.fromkeys(_VARIABLES, str(self.directory)))
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def socket(self) -> str:
        """Where the database listens."""
        return f"unix:{self.directory}/db.sock"

    def pid(self, daemon: str = "ovs-vswitchd") -> int:
        """The process id of one of the two daemons."""
        return self._daemons[daemon].pid

    def stop(self) -> None:
        """Stop both daemons, by force after `STOP_SECONDS`, and put the environment back. It can be called again."""
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

    def vsctl(self, *args: str, timeout: float = 120.0) -> str:
        """Run ``ovs-vsctl`` and return its output; `OvsError` with what it said if it fails."""
        return _run("ovs-vsctl", f"--db={self.socket}", f"--timeout={timeout:.0f}", *args)

    def ofctl(self, *args: str, stdin: str | None = None) -> str:
        """Run ``ovs-ofctl`` with OpenFlow 1.3: a bridge's name goes where the command wants it, as typed in a shell."""
        return _run("ovs-ofctl", "-O", OPENFLOW, *args, stdin=stdin)

    def appctl(self, *args: str) -> str:
        """Run ``ovs-appctl`` against the switch daemon."""
        return _run("ovs-appctl", "-t", str(self.directory / f"ovs-vswitchd.{self.pid()}.ctl"), *args)

    def _start(self) -> None:
        database = self.directory / "conf.db"
        database.unlink(missing_ok=True)
        _run("ovsdb-tool", "create", str(database), str(SCHEMA))
        self._spawn("ovsdb-server", str(database), f"--remote=p{self.socket}")
        self._await("ovsdb-server", "--no-wait", "init")
        arguments = ["--enable-dummy=override"] if self.dummy else []
        self._spawn("ovs-vswitchd", self.socket, *arguments)
        self._await("ovs-vswitchd", "set", "Open_vSwitch", ".", "external_ids:private=true")

    def _spawn(self, name: str, *args: str) -> None:
        log = self.directory / f"{name}.log"
        parent = os.getpid()
        self._daemons[name] = subprocess.Popen(
            [name, *args, f"--log-file={log}", f"--pidfile={self.directory / name}.pid", "-vconsole:off"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(self.directory / f"{name}.err").open("wb"),
            cwd=self.directory,
            start_new_session=True,  # Ctrl-C at the terminal is not for them
            preexec_fn=lambda: die_with_parent(parent),
        )

    def _await(self, name: str, *command: str) -> None:
        """Repeat an ovs-vsctl command, which waits for the daemon that has to act on it, until it succeeds."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            problem = ""
            if self._daemons[name].poll() is None:
                try:
                    # not --retry: after a first refusal it would wait for a second
                    self.vsctl(*command, timeout=5)
                    return
                except OvsError as error:
                    problem = str(error)
                    time.sleep(0.01)
            exited = self._daemons[name].poll()
            if exited is not None:
                problem = f"it exited with status {exited}"
            if exited is not None or time.monotonic() > deadline:
                raise OvsError(f"{name} did not start: {problem}\n{self._log_tail(name)}")

    def _log_tail(self, name: str, lines: int = 10) -> str:
        texts = []
        for path in (self.directory / f"{name}.err", self.directory / f"{name}.log"):
            with contextlib.suppress(OSError):
                texts += path.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join(texts)


class DummyFabric:
    """Every switch of a fat-tree as a dummy bridge of a private Open vSwitch: real OpenFlow agents, no packets.

    Bridges, ports (``e0_0-eth1``), their numbers and datapath ids are the fabric's. The ports are not connected to one another.

    Parameters
    ----------
    tree : FatTree
        The fabric.
    ovs : PrivateOvs
        An entered one, with ``dummy=True``.
    controller : str, optional
        Where the switches connect to, such as ``"tcp:127.0.0.1:6653"``.

    Raises
    ------
    OvsError
        If Open vSwitch refuses the bridges.
    """

    def __init__(self, tree: FatTree, ovs: PrivateOvs, controller: str | None = None) -> None:
        if not ovs.dummy:
            raise ValueError("a DummyFabric needs PrivateOvs(..., dummy=True)")
        self.tree = tree
        self.ovs = ovs
        self.controller = controller
        for chunk in _chunks(self._bridge(switch) for switch in tree.switches()):
            ovs.vsctl(*chunk, timeout=600)

    def interface(self, switch: Switch, port: int) -> str:
        """A port's interface name: ``e0_0-eth1``."""
        self.tree.neighbour(switch, port)
        return f"{self.tree.name(switch)}-eth{port}"

    def set_port(self, switch: Switch, port: int, up: bool) -> None:
        """Pull or plug a port's cable: the switch sends PORT_STATUS."""
        self.ovs.appctl("netdev-dummy/set-admin-state", self.interface(switch, port), "up" if up else "down")

    def trace(self, switch: Switch, flow: str) -> str:
        """What a switch would do to a packet, given as in ``ofproto/trace``: ``in_port=1,ip,nw_dst=10.0.1.2``."""
        return self.ovs.appctl("ofproto/trace", self.tree.name(switch), flow)

    def connected(self) -> int:
        """How many switches are connected to the controller now."""
        found = self.ovs.vsctl("--bare", "--columns=_uuid", "find", "Controller", "is_connected=true")
        return len(found.split())

    def _bridge(self, switch: Switch) -> list[str]:
        name = self.tree.name(switch)
        words = ["--", "add-br", name, "--", "set", "bridge", name, "datapath_type=dummy", "fail_mode=secure"]
        words += [f"protocols={OPENFLOW}", f"other-config:datapath-id={self.tree.dpid(switch):016x}"]
        words += ["other-config:disable-in-band=true", f"other-config:dp-desc={name}"]
        for port in self.tree.ports(switch):
            interface = self.interface(switch, port)
            words += ["--", "add-port", name, interface]
            words += ["--", "set", "interface", interface, "type=dummy", f"ofport_request={port}"]
        if self.controller is not None:
            words += ["--", "set-controller", name, self.controller]
            words += ["--", "set", "controller", name, "max_backoff=1000", "inactivity_probe=5000"]
        return words


def _chunks(groups: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Join groups of words into as few lists as fit on a command line."""
    chunk: list[str] = []
    size = 0
    for group in groups:
        length = sum(len(word) + 1 for word in group)
        if chunk and size + length > _ARGUMENT_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk += group
        size += length
    yield chunk


def _run(*command: str, stdin: str | None = None) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        shown = " ".join(command[:8]) + (" ..." if len(command) > 8 else "")
        raise OvsError(f"{shown}: {said or f'exit status {done.returncode}'}")
    return done.stdout
