"""Put back what killed agents have left in this network namespace: ``python -m sopa_ryu.agent.put_back``.

An agent that ends puts back what it has changed, and one that starts takes over what a killed one has left. This is for a package
that is removed, after which none starts.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from sopa_ryu.agent.agent_options import AgentOptions
from sopa_ryu.agent.host.tcp_settings import TO_CHECK
from sopa_ryu.agent.host_settings import HostSettings, InterfaceBusy, SettingsError
from sopa_ryu.agent.kernel.libbpf import BpfError
from sopa_ryu.agent.kernel.netns import cookie
from sopa_ryu.agent.labeller import Labeller

LOG = logging.getLogger("sopa.agent")


def put_back(state_dir: Path = AgentOptions.state_dir) -> bool:
    """Put the settings of all interfaces back whose agent was killed; return False if one could not be.

    Args:
        state_dir: The directory of the agents' saved settings.
    """
    try:
        saved = json.loads((state_dir / f"netns-{cookie()}.json").read_text())
        names = list(saved["interfaces"])
    except FileNotFoundError:
        return True
    except (OSError, ValueError, KeyError, TypeError) as error:
        LOG.error("the saved settings in %s cannot be read: %s. Check the interfaces' %s", state_dir, error, TO_CHECK)
        return False
    done = [_put_back(name, state_dir) for name in names]
    return all(done)


def _put_back(name: str, state_dir: Path) -> bool:
    try:
        with HostSettings(name, state_dir=state_dir) as settings, Labeller(name, owns_clsact=settings.clsact_added,
                                                                           on_clsact=settings.note_clsact):  # fmt: skip
            pass  # what was left is theirs now, and they put it back
    except InterfaceBusy as busy:
        LOG.warning("%s: its settings stay: %s", name, busy)
        return False
    except (SettingsError, BpfError) as error:
        LOG.error("%s: cannot put back every setting: %s. Check the interface's %s", name, error, TO_CHECK)
        return False
    LOG.info("%s: what a killed agent had changed is put back", name)
    return True


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    sys.exit(not put_back())
