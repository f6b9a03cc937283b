"""The OpenFlow library: Ryu, or os-ken, its maintained fork. No other module names either.

``from sopa_ryu.runtime.library import hub`` imports that part of the library, whichever it is; both have the same parts, but for
`wsgi` and `ryu_command`, which os-ken has no more. The environment variable SOPA_OPENFLOW chooses where both are installed.
"""

import os
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

_OFFERED = {"ryu": "sopa-ryu[ryu]", "os_ken": "sopa-ryu[os-ken]"}
_PARTS = {
    **{name: name for name in ("cfg", "log", "utils")},
    **{name: f"base.{name}" for name in ("app_manager",)},
    **{name: f"controller.{name}" for name in ("controller", "ofp_event", "ofp_handler")},
    **{name: f"controller.handler:{name}" for name in ("DEAD_DISPATCHER", "MAIN_DISPATCHER", "set_ev_cls")},
    **{name: f"exception:{name}" for name in ("OFPTruncatedMessage", "OFPUnknownVersion")},
    **{name: f"lib.{name}" for name in ("hub",)},
    **{name: f"lib.packet.{name}" for name in ("icmp", "icmpv6", "ipv4", "ipv6", "lldp", "packet")},
    "ETH_TYPE_LLDP": "lib.packet.ether_types:ETH_TYPE_LLDP",
    **{name: f"ofproto.{name}" for name in ("nicira_ext", "ofproto_common", "ofproto_parser", "ofproto_protocol")},
    **{name: f"ofproto.{name}" for name in ("ofproto_v1_3", "ofproto_v1_3_parser")},
    "ProtocolDesc": "ofproto.ofproto_protocol:ProtocolDesc",
    "ryu_command": "cmd.manager",
    "wsgi": "app.wsgi",
}


@cache
def name() -> str:
    """Return ``ryu`` or ``os_ken``. The process ends with a line for the operator (`SystemExit`) if there is none."""
    asked = os.environ.get("SOPA_OPENFLOW", "")
    if asked not in ("", *_OFFERED):
        raise SystemExit(f"SOPA_OPENFLOW must be ryu or os_ken, not {asked}")
    found = next((its for its in ([asked] if asked else _OFFERED) if find_spec(its)), None)
    if found is None:
        commands = " or ".join(f"pip install '{_OFFERED[its]}'" for its in ([asked] if asked else _OFFERED))
        raise SystemExit(f"{asked or 'an OpenFlow library'} is not installed: {commands}")
    if found == "os_ken":
        # Its own threads, the default since 4.2, swallow exceptions, and have no servers.
        os.environ["OSKEN_HUB_TYPE"] = "eventlet"
    return found


def version() -> str:
    """Return the version of the library that `name` chooses."""
    return metadata.version(name())


def __getattr__(part: str) -> Any:
    if part == "App":  # what applications derive from
        its: Any = import_module(f"{name()}.base.app_manager")
        return its.RyuApp if name() == "ryu" else its.OSKenApp
    if part not in _PARTS:
        raise AttributeError(part)
    module, _, attribute = _PARTS[part].partition(":")
    if module.startswith("controller."):
        import_module(f"{name()}.base.app_manager")  # they import each other, and it has to be the first
    its = import_module(f"{name()}.{module}")
    return getattr(its, attribute) if attribute else its
