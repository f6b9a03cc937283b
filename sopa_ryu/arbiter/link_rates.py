"""What the controller measures at the ports of hosts: their links' capacity, and the load of those that do not take part."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import httpx

from sopa_ryu.arbiter.schedule import Load
from sopa_ryu.channel.client import ClientOptionError, ControllerAddress

LOG = logging.getLogger("sopa.arbiter")

LINKS = "/sopa/v1/links"
POLL_SECONDS = 5.0
FIRST_SECONDS = 0.1
"""How often it is looked whether the fabric is known: no slot may be granted without these rates."""
TIMEOUT_SECONDS = 10.0
MAX_PAGE = 1000
NEGLIGIBLE = 0.001
"""A load below this share of a link is what protocols send by themselves."""
_MEGA = 1e6


class HostLinks(NamedTuple):
    """What is known of the hosts' links.

    Attributes:
        mbit: The capacity of the slowest; None if none is known.
        loads: The loads that are not negligible, by the host's number.
    """

    mbit: float | None
    loads: Mapping[int, Load]


def read_links(links: Sequence[Mapping[str, Any]], mbit: float | None = None) -> HostLinks:
    """Read the hosts' links of ``GET /links``, in the order of addresses.

    Args:
        mbit: The capacity to reckon with, if it is not that of the ports.

    >>> up = {"up_bits_per_second": 1e6, "down_bits_per_second": 0.0, "capacity_bits_per_second": 4e6}
    >>> read_links([up, {**up, "up_bits_per_second": None}])
    HostLinks(mbit=4.0, loads={0: Load(sending=0.25, receiving=0.0)})
    """
    known = [link["capacity_bits_per_second"] for link in links if link["capacity_bits_per_second"]]
    loads: dict[int, Load] = {}
    for index, link in enumerate(links):
        capacity = mbit * _MEGA if mbit is not None else link["capacity_bits_per_second"]
        if capacity:
            load = Load(*((link[f"{way}_bits_per_second"] or 0.0) / capacity for way in ("up", "down")))
            if max(load) > NEGLIGIBLE:
                loads[index] = load
    return HostLinks(min(known) / _MEGA if known else None, loads)


class LinkRates:
    """The poll of the controller's link rates.

    Args:
        address: Returns the controller that is in use.
        hosts: Returns how many hosts the fabric has; 0 if that is not known yet.
        mbit: The capacity of hosts' links, if it is not that of the ports.
        read: Called with what was found, in each round.
    """

    def __init__(
        self,
        address: Callable[[], ControllerAddress],
        hosts: Callable[[], int],
        mbit: float | None,
        read: Callable[[HostLinks], None],
    ) -> None:
        self._address, self._hosts, self._mbit, self._read = address, hosts, mbit, read
        self._problem = ""

    async def run(self) -> NoReturn:
        """Poll until cancelled. What was read last stays while the controller does not answer."""
        while True:
            try:
                address = self._address()
                verify = address.tls() or True
                # a proxy in the environment is for other networks, not for a controller
                async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS, trust_env=False, verify=verify) as client:
                    while address is self._address():
                        hosts = self._hosts()
                        if hosts:
                            self._read(read_links(await self._links(client, address, hosts), self._mbit))
                            self._problem = ""
                        await asyncio.sleep(POLL_SECONDS if hosts else FIRST_SECONDS)
            except (httpx.HTTPError, httpx.InvalidURL, ClientOptionError, ValueError, KeyError, TypeError) as error:
                self._report(address.url, str(error) or type(error).__name__)
                await asyncio.sleep(POLL_SECONDS)

    async def _links(
        self, client: httpx.AsyncClient, address: ControllerAddress, hosts: int
    ) -> list[Mapping[str, Any]]:
        links: list[Mapping[str, Any]] = []
        while len(links) < hosts:
            params = {"offset": len(links), "limit": min(MAX_PAGE, hosts - len(links))}
            url = re.sub("^ws", "http", address.url).rstrip("/") + LINKS
            answer = await client.get(url, params=params)
            page = answer.raise_for_status().json()["links"]
            if not page:
                raise ValueError("it has fewer links than hosts")
            links += page
        return links

    def _report(self, url: str, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            LOG.warning(
                "link rates cannot be read from %s: %s; the load of hosts that do not take part stays as it was read last; check "
                "the controller and the network to it",
                url,
                problem,
            )
