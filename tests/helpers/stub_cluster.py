"""A member of a cluster that is only what REST, page and commands read of it."""

from typing import Any

from sopa_ryu.rest.reader import UndecidedError


class StubCluster:
    """Implements `sopa_ryu.rest.reader.ClusterControl`: a member of c1, c2 and c3, of which those that stand by have a lag."""

    def __init__(self, leader: str | None = "c1", *, member: str = "c1", **urls: str) -> None:
        self.leader, self.member = leader, member
        self.lag, self.waiting = 2, 1
        self.urls = {**{f"c{number}": f"http://192.0.2.{number}:8080" for number in (1, 2, 3)}, **urls}
        self.term = 1_790_000_000_000
        self.engine: dict[str, Any] = {"reachable": True, "problem": None}
        self.away: set[str] = set()
        self.stepped_down = 0

    @property
    def is_leader(self) -> bool:
        return self.leader == self.member

    def leader_url(self) -> str | None:
        return None if self.leader is None else self.urls[self.leader]

    def report(self) -> dict[str, Any]:
        members = []
        for name, url in self.urls.items():
            role = "away" if name in self.away else "leader" if name == self.leader else "standby"
            lag = {"away": None, "leader": 0, "standby": self.lag}[role]
            members.append({"name": name, "role": role, "lag": lag, "url": url, "program": "0.1.0", "switches": 20})
        relays = [{"name": "r1", "url": "http://192.0.2.31:8080", "agents": 16, "version": 7, "waiting": self.waiting}]
        told = {"name": "sopa", "term": self.term, "leader": self.leader}
        return {**told, "members": members, "relays": relays, "engine": self.engine}

    def step_down(self) -> None:
        if not self.is_leader:
            raise UndecidedError("this member does not lead any more")
        self.stepped_down += 1
        self.leader = None
