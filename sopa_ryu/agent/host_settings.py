"""The host settings that an agent changes: saved before the change, and put back afterwards.

- the TCP settings of the network namespace (`tcp_settings`).
- the MTU of the interface, for the ``option`` carrier: lower by the 4 bytes that the option adds to a packet.
- a segmentation device on the interface (`kernel.segmentation`): tc egress sees a burst before it is cut into packets.
- ``gso_max_segs`` of the interface, where several packets are to share a label, or where the kernel refuses that device:
  TCP hands over no longer bursts. Connections that are open already keep their burst size until they look up their
  route again.

With `HostSettings.changes` false, for MCS, only the MTU is changed, and what a killed agent of another policy has left is put back.

The saved settings are in one state file per network namespace, ``netns-<cookie>.json``, since the TCP settings are
the namespace's and several agents may work in it: the last one to leave puts them back. Each has a lock on its interface; an
entry whose lock is free was left by a killed agent, and its saved values are kept, never replaced by what that agent
had set. A value that another program has changed meanwhile stays. Files of another boot, and entries of an interface
that has gone, are ignored; the entry of one that is away stays, for its return.

While the agent works, `HostSettings.changed` finds what another program has changed, and `HostSettings.mend` sets it again.
The value that was found is then the one to be put back: it is newer than the one that was saved.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from pyroute2.netlink.exceptions import NetlinkError

from sopa_ryu.agent.agent_options import AgentOptions
from sopa_ryu.agent.host import mtus, tcp_settings
from sopa_ryu.agent.host.mending import Part
from sopa_ryu.agent.host.saved_settings import InterfaceBusy, SavedSettings, SettingsError, State
from sopa_ryu.agent.host.tcp_settings import DEFAULT_MIN_RTT_WINDOW, DEFAULT_THRESHOLD, TcpSettings
from sopa_ryu.agent.kernel import link_attributes, segmentation
from sopa_ryu.agent.kernel.netns import cookie, inside

__all__ = ["HostSettings", "InterfaceBusy", "SettingsError"]

LOG = logging.getLogger("sopa.agent")

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class HostSettings:
    """The settings of one interface and its namespace, for the time that an agent needs them.

    Args:
        ifname: The interface.
        fr_threshold: TCP's fast-retransmit threshold in duplicate ACKs (or packets SACKed above a hole), 1 to 300 and at most
            the namespace's ``tcp_max_reordering``.
        state_dir: The directory of saved settings; made if it is missing. It should not outlive a boot.
        netns: Path of the interface's network namespace; the caller's own by default.
        min_rtt_window: The seconds over which TCP remembers the shortest round trip.
        overhead: Bytes that a packet grows by below the IP layer: the MTU is lowered by as many.
        segments: The packets of a burst that share a label.
        cuts: Whether bursts of one packet are cut by a segmentation device; if not, TCP makes them no longer.
        changes: False to change only the MTU: besides the lock is taken, and what is known of clsact is kept.

    Attributes:
        fabric_mtu: Since `apply`: the interface's own MTU, in bytes.
        cut_by: Since `apply`: the index of the segmentation device; 0 if bursts are not cut before they are labelled.
    """

    def __init__(
        self,
        ifname: str,
        *,
        fr_threshold: int = DEFAULT_THRESHOLD,
        min_rtt_window: int = DEFAULT_MIN_RTT_WINDOW,
        overhead: int = 0,
        state_dir: Path = AgentOptions.state_dir,
        netns: str | None = None,
        segments: int = AgentOptions.segments,
        changes: bool = True,
        cuts: bool = True,
    ) -> None:
        self.ifname, self.fr_threshold, self.segments = ifname, fr_threshold, segments
        self.changes, self.cuts = changes, cuts
        self._tcp = TcpSettings(fr_threshold, min_rtt_window)
        self.state_dir, self.netns = state_dir, netns
        self.overhead = overhead
        self.fabric_mtu = 0
        self.cut_by = 0
        self._uncut = ""
        self._saved: SavedSettings | None = None
        self._ifindex = 0

    def __enter__(self) -> HostSettings:
        self.apply()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.restore()

    def apply(self) -> None:
        """Lock the interface, save its settings, then change them.

        Raises:
            SettingsError: For a threshold out of range, an unknown interface, a state directory that cannot be written, or a
                refusal.
            InterfaceBusy: If another agent has the interface; the message has its pid.
        """
        with inside(self.netns):
            try:
                self._ifindex = socket.if_nametoindex(self.ifname)
            except OSError as error:
                raise SettingsError(f"no interface {self.ifname} in {self.netns or 'this network namespace'}") from error
            limit = tcp_settings.maximum_threshold()
            if self.changes and not 1 <= self.fr_threshold <= limit:
                raise SettingsError(
                    f"the fast-retransmit threshold must be 1 to {limit} (300, and net.ipv4.tcp_max_reordering), "
                    f"not {self.fr_threshold}"
                )
            saved = SavedSettings(self.state_dir, str(cookie()), _BOOT_ID.read_text().strip(), self.ifname)
            try:
                with saved.state() as state:
                    saved.take()
                    if not self.changes:
                        self._put_back_left(saved, state)
                    wanted_mtus = self._save(state)
            except OSError as error:
                saved.release()
                raise SettingsError(
                    f"cannot save the settings in {self.state_dir}: {error.strerror}. Nothing was changed. "
                    "Make room there, or name another directory."
                ) from error
            except BaseException:
                saved.release()
                raise
            self._saved = saved
            try:
                self._write(wanted_mtus)
            except (OSError, NetlinkError) as error:
                self.restore()
                raise SettingsError(f"cannot change the settings of {self.ifname}: {error} (run as root?)") from error
            except BaseException:  # a signal
                self.restore()
                raise

    def changed(self) -> dict[Part, str]:
        """Return what another program has changed since it was set: for each part, what it is now and what it has to be.

        Raises:
            SettingsError: If the interface or the saved settings cannot be read.
        """
        found: dict[Part, str] = {}
        if not self.changes:
            return found
        try:
            with inside(self.netns):
                different = self._tcp.different()
                if different:
                    with self._state() as state:
                        found |= self._tcp.foreign(state, different)
                if self.cut_by:
                    wrong = segmentation.wrong(self._ifindex, self.cut_by)
                    if wrong:
                        found[Part.SEGMENTS] = wrong
                elif (segments := link_attributes.segments(self._ifindex)) != self.segments:
                    found[Part.SEGMENTS] = f"gso_max_segs of {self.ifname} was set to {segments} instead of {self.segments}"
                if self.overhead:
                    with self._state() as state:
                        wanted = self._plan_mtus(state["interfaces"][self.ifname]).wanted
                    if wanted:
                        names = ", ".join(f"{socket.if_indextoname(index)} (must be {mtu})" for index, mtu in wanted.items())
                        found[Part.MTU] = f"the MTU, which has to leave room for the option, was changed at {names}"
        except (OSError, NetlinkError, KeyError, TypeError) as error:
            raise SettingsError(f"the settings of {self.ifname} cannot be read: {error}") from error
        return found

    def mend(self) -> None:
        """Save what another program has set meanwhile, as that which is to be put back, and set again what labelling needs.

        Raises:
            SettingsError: If it cannot be saved or changed.
        """
        try:
            with inside(self.netns):
                with self._state() as state:
                    wanted_mtus = self._save(state)
                self._write(wanted_mtus)
        except (OSError, NetlinkError) as error:
            raise SettingsError(f"cannot change the settings of {self.ifname}: {error}") from error

    def limit_bursts(self, segments: int) -> None:
        """Limit bursts to so many packets, also those of connections that are open.

        Raises:
            SettingsError: If it cannot be saved or changed.
        """
        if segments == self.segments:
            return  # many hosts of a lab ask at once, and their looks together keep its switches from BFD
        self.segments = segments
        self.mend()
        with inside(self.netns):
            link_attributes.forget_routes()

    def _restore_tcp(self, saved: SavedSettings, state: State) -> None:
        """Put the namespace's TCP settings back, unless another agent is at work there."""
        if not any(saved.is_locked(name) for name in state["interfaces"] if name != self.ifname):
            tcp_settings.restore(state)

    def _write(self, wanted_mtus: dict[int, int]) -> None:
        if self.changes:
            self._tcp.write()
            self._limit_bursts()
        for index, mtu in wanted_mtus.items():
            link_attributes.write_mtu(index, mtu)

    def _limit_bursts(self) -> None:
        """Have bursts cut into packets before they are labelled, or else let TCP hand over none that are too long."""
        if self.segments == 1 and self.cuts:
            try:
                self.cut_by = segmentation.create(self._ifindex)
            except (OSError, NetlinkError) as error:
                self.cut_by = 0
                self._say_uncut(error)
        else:
            segmentation.remove(self._ifindex)  # of a killed agent with other options
        with self._state() as state:
            mine = state["interfaces"][self.ifname]
            written = _gso_written(mine)
            mine["gso_written"] = None if self.cut_by else self.segments
        if not self.cut_by:
            link_attributes.write_segments(self._ifindex, self.segments)
        elif link_attributes.segments(self._ifindex) == written:
            link_attributes.write_segments(self._ifindex, mine["gso_max_segs"])

    def _say_uncut(self, error: Exception) -> None:
        """Say once why bursts are not cut, and what that costs."""
        if self._uncut != str(error):
            self._uncut = str(error)
            LOG.warning(
                "%s: the kernel makes no segmentation device (macvlan) on it: %s. TCP sends packet by packet instead "
                "(gso_max_segs 1). This takes twice the processor time, and is slow with BBR. Load the module macvlan, take the "
                "interface out of its bridge, or use --segments 16",
                self.ifname,
                error.args[-1],
            )

    def restore(self) -> None:
        """Put the interface's settings back, the namespace's too if this is its last agent, and unlock it. May be repeated."""
        saved = self._saved
        if saved is None:
            return
        try:
            with inside(self.netns), saved.state() as state:
                mine = state["interfaces"].get(self.ifname)
                if mine:
                    segmentation.remove(mine["ifindex"])  # it stays when its interface goes to another namespace
                if mine and link_attributes.alive(mine["ifindex"]):
                    del state["interfaces"][self.ifname]
                    _put_back(mine)
                self._restore_tcp(saved, state)
        finally:
            saved.release()
            self._saved = None

    @property
    def clsact_added(self) -> bool:
        """True if this agent, or a killed predecessor, added the interface's clsact qdisc."""
        with inside(self.netns), self._state() as state:
            return bool(state["interfaces"][self.ifname]["clsact_added"])

    def note_clsact(self, added: bool) -> None:
        """Save whether the clsact qdisc is ours: to be called before adding it, and after removing it."""
        with inside(self.netns), self._state() as state:
            state["interfaces"][self.ifname]["clsact_added"] = added

    def _state(self) -> AbstractContextManager[State]:
        if self._saved is None:
            raise SettingsError(f"the settings of {self.ifname} have not been saved")
        return self._saved.state()

    def _put_back_left(self, saved: SavedSettings, state: State) -> None:
        """Put back what a killed agent has left, but for its knowledge of clsact."""
        left = self._left(state, link_attributes.mac(self._ifindex))
        if left is not None:
            segmentation.remove(self._ifindex)
            _put_back({**left, "ifindex": self._ifindex})
            state["interfaces"][self.ifname] = {**left, "ifindex": self._ifindex, "gso_written": None, "mtus": {}}
        self._restore_tcp(saved, state)

    def _save(self, state: State) -> dict[int, int]:
        """Save the settings; return the MTUs to be set, by interface index."""
        if self.changes:
            self._tcp.save(state)
        now, mac = link_attributes.segments(self._ifindex), link_attributes.mac(self._ifindex)
        mine = self._left(state, mac) or {"gso_max_segs": now, "clsact_added": False, "gso_written": None}
        if now != _gso_written(mine):
            mine["gso_max_segs"] = now
        planned = self._plan_mtus(mine)
        state["interfaces"][self.ifname] = {
            **mine,
            "ifindex": self._ifindex,
            "mac": mac,
            "pid": os.getpid(),
            "mtus": {str(index): pair for index, pair in planned.saved.items()},
        }
        return planned.wanted

    def _plan_mtus(self, mine: State) -> mtus.MtuPlan:
        planned = mtus.plan(self._ifindex, self.ifname, self.overhead, mtus.left_by(mine))
        self.fabric_mtu = planned.fabric_mtu
        return planned

    def _left(self, state: State, mac: str) -> State | None:
        """Return what was saved for this interface and has not been put back; None if there is nothing.

        An interface that was in another namespace meanwhile has the settings that it left with, and no qdisc, and can have got
        another index. Another interface of the same name has another MAC address.
        """
        left: State | None = state["interfaces"].get(self.ifname)
        if left is None or left["ifindex"] == self._ifindex:
            return left
        segmentation.remove(left["ifindex"])
        if left.get("mac") != mac:
            return None
        own = left.get("mtus", {}).get(str(left["ifindex"]))
        return {**left, "clsact_added": False, "mtus": {str(self._ifindex): own} if own else {}}


def _put_back(mine: State) -> None:
    """Put the settings of an interface back, but for those that another program has changed since."""
    if link_attributes.segments(mine["ifindex"]) == _gso_written(mine):
        link_attributes.write_segments(mine["ifindex"], mine["gso_max_segs"])
    mtus.restore(mine["ifindex"], mine)


def _gso_written(mine: State) -> int | None:
    """Return the ``gso_max_segs`` that an agent has written; None if none has."""
    written: int | None = mine.get("gso_written", 1)  # version 1.x saved none, and wrote 1
    return written
