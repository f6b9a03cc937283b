"""An agent's settings and program at the host's end of a pair, at work and killed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowrules.label import Carrier
from sopa_ryu.agent.host_settings import HostSettings
from sopa_ryu.agent.label.spray import EVERYTHING, Spray
from sopa_ryu.agent.labeller import Labeller
from sopa_ryu.agent.paths.path_table import PathTable
from tests.helpers.frames import table
from tests.helpers.veth import Pair


@contextmanager
def labelling(
    pair: Pair,
    state_dir: Path,
    carrier: Carrier = Carrier.MAC,
    *,
    segments: int = 1,
    paths: PathTable | None = None,
    spray: Spray = EVERYTHING,
) -> Iterator[Labeller]:
    settings = HostSettings("host0", state_dir=state_dir, netns=pair.host, overhead=carrier.overhead, segments=segments)
    with settings:
        options = {"fabric_mtu": settings.fabric_mtu, "cut_by": settings.cut_by, "on_clsact": settings.note_clsact, "spray": spray}
        with Labeller("host0", netns=pair.host, carrier=carrier, owns_clsact=settings.clsact_added, **options) as made:
            made.swap(paths or table())
            made.attach()
            yield made


def kill_agent(pair: Pair, state_dir: Path, carrier: Carrier) -> bool:
    """Leave what SIGKILL leaves: settings, the state file, a lock without an owner, and the program; return if it had inherited."""
    settings = HostSettings("host0", state_dir=state_dir, netns=pair.host, overhead=carrier.overhead)
    settings.apply()
    owns = {"owns_clsact": settings.clsact_added, "on_clsact": settings.note_clsact}
    labeller = Labeller("host0", netns=pair.host, carrier=carrier, **owns)
    labeller.load()
    inherited = labeller.inherits()
    labeller.swap(table())
    labeller.attach()
    abandon(settings)
    labeller.close()  # as the kernel closes a killed agent's descriptors
    return inherited


def abandon(settings: HostSettings) -> None:
    """Release the lock of applied settings, as the kernel does at a process' end."""
    assert settings._saved is not None
    settings._saved.release()
