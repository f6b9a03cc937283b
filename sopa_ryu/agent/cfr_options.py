"""The options of the policy ``cfr``. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from sopa_ryu.agent.cfr_grants import DEFAULT_LATE_NS
from sopa_ryu.agent.hint_place import default_path
from sopa_ryu.channel.slots import PORT

NO_HINTS = "off"


class CfrOptions(NamedTuple):
    """The options of the policy ``cfr``.

    Parameters
    ----------
    arbiter : (str, int)
        Its address, or name, and its UDP port.
    late_ns : int
        The nanoseconds by which a packet may end after its slot.
    hints : str
        Where the socket of hints is; by default in the state directory. `NO_HINTS` for none.
    departure_times : bool
        Whether data goes to the interface's qdisc ahead of its slot where that keeps departure times.
    """

    arbiter: tuple[str, int]
    late_ns: int = DEFAULT_LATE_NS
    hints: str = ""
    departure_times: bool = True

    def hints_at(self, state_dir: Path, namespace: int) -> Path | None:
        """Return where the socket of hints of a network namespace is; None if there is to be none."""
        if self.hints == NO_HINTS:
            return None
        return Path(self.hints) if self.hints else default_path(state_dir, namespace)


def parse_arbiter(text: str) -> tuple[str, int]:
    """Return the address and the port of an arbiter.

    Raises
    ------
    ValueError
        If it is malformed.

    Examples
    --------
    >>> parse_arbiter("192.0.2.1:9160"), parse_arbiter("arbiter.example"), parse_arbiter("[2001:db8::1]:9161")
    (('192.0.2.1', 9160), ('arbiter.example', 9160), ('2001:db8::1', 9161))
    """
    what = f"{text!r} is no arbiter: write ADDRESS:PORT"
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{what} ({error})") from error
    if not parts.hostname or parts.netloc != text or "@" in text or port == 0:
        raise ValueError(what)
    return parts.hostname, PORT if port is None else port
