"""A Clos fabric as Linux routers with static SRv6 uSIDs, and with static multipath routes for what is not encapsulated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack

from experiments.emulation.routers.router_lab import RouterLab
from topologies import Host, Switch
from topologies.lab.routers import configure, require_programs, set_dead


class Srv6Lab(RouterLab):
    """A fabric of routers that have run what ``sopa fabric srv6`` prints; parameters and errors as of `RouterLab`.

    What is not encapsulated follows multipath routes. A router leaves out uplinks without a carrier at its own end; it knows of no
    other failure.
    """

    _without_ipv6 = "0"

    def _begin(self, _stack: ExitStack) -> None:
        require_programs()

    def _host(self, host: Host) -> Iterator[str]:
        for family in self.tree.families[1:]:
            yield f"address add {family.address(host)}/128 dev {self.interface(host, 0)} nodad"
        yield from super()._host(host)

    def _host_routes(self, host: Host) -> list[str]:
        lines, interface = super()._host_routes(host), self.interface(host, 0)
        for gateway in (family.gateway(host) for family in self.tree.families[1:]):
            lines += [f"route replace {gateway}/128 dev {interface}", f"route replace default via {gateway} dev {interface}"]
        return lines

    def _router(self, router: Switch) -> Iterator[str]:
        return (f"link set {self.interface(router, port)} up" for port in self.tree.ports(router))

    def _start(self, routers: Iterable[Switch]) -> None:
        for router in routers:
            self._set_kernel(router)
            self._configure(router)

    def set_link(self, name: str, up: bool) -> None:
        """Take a link down at both ends, or bring it up."""
        super().set_link(name, up)
        for end in self.tree.link_by_name(name) if up else ():
            if isinstance(end, Switch):  # the kernel has removed addresses and routes with the link
                self._configure(end)

    def set_router(self, name: str, alive: bool) -> None:
        """Have a router drop all packets while the ports of its neighbours keep their carrier, or restart it."""
        set_dead(self.netns(name), not alive)
        self._failed = self._failed.without(name) if alive else self._failed.with_failed(name)

    def await_settled(self) -> None:
        """Return at once: no route is learned."""

    def _configure(self, router: Switch) -> None:
        configure(self.tree, router, self.netns(router))

    def _to_host(self, host: Host, interface: str) -> list[str]:
        return []  # `_configure` does all
