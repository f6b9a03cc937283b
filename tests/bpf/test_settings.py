"""Changes of host settings by the agent, and their restoration, in a throwaway network namespace.

In the scripts ``agent NAME`` applies an agent's settings, ``leave`` restores them, ``kill`` leaves what SIGKILL leaves, ``mend``
puts right what another program has changed, ``limit`` changes the limit of bursts. ``ip``, ``peer`` and ``sysctl`` are other
programs; ``saved`` changes what agents have saved. Each step says what is different afterwards.
"""

import json
import logging
import re
from pathlib import Path

import pytest

from sopa_ryu.agent.host_settings import HostSettings, InterfaceBusy, SettingsError
from sopa_ryu.agent.kernel.netns import inside
from tests.bpf.labelling import abandon
from tests.helpers.golden import Script, Step, each_script
from tests.helpers.veth import Pair, run

HIDDEN = {r"sopa\d+": "sopaN", r"\S+\.json": "STATE", r"pid \d+": "pid N", r"\(Expecting.*?\)\)": "(...)"}
SYSCTLS = "tcp_reordering", "tcp_min_rtt_wlen"


def sysctl(name: str) -> Path:
    return Path(f"/proc/sys/net/ipv4/{name}")


class Host:
    """The host's end of a pair, and the settings of agents on it by their names."""

    def __init__(self, pair: Pair, state_dir: Path, log: pytest.LogCaptureFixture) -> None:
        self.pair, self._directory, self._log = pair, state_dir, log
        self._agents: dict[str, HostSettings] = {}
        self._index = json.loads(pair.on_host("ip -j link show host0"))[0]["ifindex"]
        self._known = self.state()

    def state(self) -> dict[str, object]:
        """What agents change, by name."""
        with inside(self.pair.host):
            its: dict[str, object] = {name: int(sysctl(name).read_text()) for name in SYSCTLS}
        for link in json.loads(self.pair.on_host("ip -d -j link show")):
            name = link["ifname"]
            its |= {name: "there", f"{name} mtu": link["mtu"], f"{name} gso_max_segs": link["gso_max_segs"]}
        return its | {path.name: "saved" for path in self._directory.glob("*.json")}

    def handle(self, step: Step) -> str:
        self._log.clear()
        said = getattr(self, f"do_{step.command}")(step) or ""
        before, self._known = self._known, self.state()
        rows = [said, *(record.message for record in self._log.records if record.levelno >= logging.WARNING)]
        for name in sorted({*before, *self._known}):
            was, now = (each.get(name) for each in (before, self._known))
            owner = name.split()[0]
            if was != now and (" " not in name or (owner in before and owner in self._known)):
                rows.append(f"{name}: {was} -> {now}" if None not in (was, now) else f"{name}: {now or 'gone'}")
        shown = "\n".join(rows).replace(str(self._directory), "STATE").replace(self.pair.host, "NETNS")
        for pattern, name in HIDDEN.items():
            shown = re.sub(pattern, name, shown)
        return shown

    def do_agent(self, step: Step) -> str:
        options = {name: int(value) for name, value in step.options.items() if name != "on"}
        its = HostSettings(step.options.get("on", "host0"), state_dir=self._directory, netns=self.pair.host, **options)
        try:
            its.apply()
        except (SettingsError, InterfaceBusy) as error:
            return f"refused: {error}"
        self._agents[step.words[0]] = its
        return "clsact is ours" if its.clsact_added else ""

    def do_leave(self, step: Step) -> None:
        self._agents[step.words[0]].restore()

    def do_kill(self, step: Step) -> None:
        abandon(self._agents[step.words[0]])

    def do_mend(self, step: Step) -> str:
        its = self._agents[step.words[0]]
        found = "\n".join(its.changed().values())
        its.mend()
        return found

    def do_limit(self, step: Step) -> None:
        self._agents[step.words[0]].limit_bursts(int(step.words[1]))

    def do_clsact(self, step: Step) -> None:
        self._agents[step.words[0]].note_clsact(step.words[1] == "added")

    def do_ip(self, step: Step) -> None:
        self.pair.on_host(f"ip {self._words(step)}")

    def do_peer(self, step: Step) -> None:
        self.pair.on_peer(self._words(step))

    def do_sysctl(self, step: Step) -> None:
        with inside(self.pair.host):
            for name, value in step.options.items():
                sysctl(name).write_text(value)

    def do_saved(self, step: Step) -> None:
        [path] = self._directory.glob("*.json")
        state = json.loads(path.read_text()) | step.options
        for name in step.words:
            for part in (state, state["interfaces"]["host0"]):
                part.pop(name, None)
        path.write_text("{" if "damaged" in step.words else json.dumps(state))

    def _words(self, step: Step) -> str:
        """A command's words, with names of the pair's namespaces and of its segmentation device."""
        names = {"HOST": Path(self.pair.host).name, "PEER": Path(self.pair.peer).name}
        names |= {"sopaN": f"sopa{self._index}", "INDEX": str(self._index + 50)}
        return " ".join(names.get(word, word) for word in step.words)


@each_script(__file__, "settings")
def test_script(pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture, script: Script) -> None:
    outside = [sysctl(name).read_text() for name in SYSCTLS]
    script.play(Host(pair, tmp_path, caplog).handle)
    assert [sysctl(name).read_text() for name in SYSCTLS] == outside


def test_a_state_directory_that_takes_nothing_stops_the_agent_before_any_change(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    disk = tmp_path / "disk"
    disk.mkdir()
    run(f"mount -t tmpfs -o size=8k sopatest {disk}")
    host = Host(pair, disk, caplog)
    before = host.state()
    try:
        (disk / "filler").write_bytes(bytes(8192))
        for directory, why in ((tmp_path / "file" / "state", ""), (disk, r"No space left on device\. ")):
            with pytest.raises(SettingsError, match=f"{why}Nothing was changed"):
                HostSettings("host0", state_dir=directory, netns=pair.host).apply()
            assert host.state() == before
        (disk / "filler").unlink()
        with HostSettings("host0", state_dir=disk, netns=pair.host):
            assert host.state()["tcp_reordering"] == 10
    finally:
        run(f"umount {disk}")
