"""A Clos fabric as Linux routers with static SRv6 uSIDs, and with static multipath routes for what is not encapsulated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack

from experiments.emulation.routers.frr_daemons import run_command
from experiments.emulation.routers.router_lab import RouterLab
from topologies import Host, Switch, srv6_plan
from topologies.lab.isolation import require
from topologies.srv6 import link_local

_DEAD = "table inet dead { chain everything { type filter hook prerouting priority -400; policy drop; }; }"


class Srv6Lab(RouterLab):
    """A fabric of routers that have run what ``sopa fabric srv6`` prints; parameters and errors as of `RouterLab`.

    What is not encapsulated follows multipath routes. A router leaves out uplinks without a carrier at its own end; it knows of no
    other failure.
    """

    _without_ipv6 = "0"

    def _begin(self, _stack: ExitStack) -> None:
        require("nft", "sysctl")

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
        self._run(self.tree.switch(name), "nft", "delete table inet dead" if alive else _DEAD)
        self._failed = self._failed.without(name) if alive else self._failed.with_failed(name)

    def await_settled(self) -> None:
        """Return at once: no route is learned."""

    def _configure(self, router: Switch) -> None:
        printed = srv6_plan.text(self.tree, [router], "iproute2", f"{self.tree.name(router)}-eth{{port}}")
        self._run(router, "sh", "-euc", "\n".join(printed))
        self._ip(router, [*self._plain_routes(router)])

    def _plain_routes(self, router: Switch) -> Iterator[str]:
        towards = [(port, node) for port, node in self.tree.ports(router).items() if isinstance(node, Switch)]
        for family in self.tree.families:
            hops = []
            for port, node in towards:
                hop = f"via {'inet6 ' if family.number == 4 else ''}{link_local(node)} dev {self.interface(router, port)}"
                if node.level > router.level:
                    hops.append(f"nexthop {hop}")
                else:
                    yield f"route replace {family.prefix(node)} {hop}"
            if hops:
                yield f"route replace {family.network} {' '.join(hops)}"

    def _to_host(self, host: Host, interface: str) -> list[str]:
        return []  # `_configure` does all

    def _run(self, router: Switch, *command: str) -> None:
        run_command("nsenter", f"--net={self.netns(router)}", *command)
