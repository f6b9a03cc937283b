"""The speed of an interface's link, by ethtool, in the calling thread's network namespace (`netns.inside`)."""

from __future__ import annotations

_UNKNOWN = 2**32 - 1  # SPEED_UNKNOWN of linux/ethtool.h


def speed(ifname: str) -> int | None:
    """Return the speed in Mbit/s; None if the interface has none, or does not know it (no cable)."""
    # it takes a quarter of a second, and few agents ask
    from pyroute2 import Ethtool
    from pyroute2.ethtool.ioctl import EthtoolError
    from pyroute2.netlink.exceptions import NetlinkError

    ethtool = Ethtool()
    try:
        found = ethtool.get_link_mode(ifname).speed
    except (EthtoolError, NetlinkError, OSError):
        return None
    finally:
        ethtool.close()
    return int(found) if found and 0 < found < _UNKNOWN else None
