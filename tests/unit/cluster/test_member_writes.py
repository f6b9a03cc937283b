"""A member's writes on an engine in memory, by scripts: each is fenced by its leadership, and none comes after a later one."""

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from sopa_ryu.cluster import records
from sopa_ryu.cluster.engine import EngineError, Kind
from sopa_ryu.cluster.gateway import Contents, Kept, Written
from sopa_ryu.cluster.leadership import DeposedError, Member
from sopa_ryu.cluster.records import Charter, CommittedView, Leader
from sopa_ryu.cluster.view import Identity
from sopa_ryu.fabric.commitment import Proposal
from sopa_ryu.fabric.drain import Drain
from sopa_ryu.rest.reader import UndecidedError
from tests.helpers.golden import Script, Step, each_script
from topologies import Failures, FatTree

TREE = FatTree(4)
SECRET = "secret"
LEASES = {"m1": 11, "m2": 22}


class MemoryEngine:
    """An engine that gives no answer to the next write of the key `lost`, which was done, or is done later as `late`."""

    def __init__(self) -> None:
        self.address = SimpleNamespace(name="sopa")
        self.keys: dict[str, Kept] = {}
        self.revision = 1
        self.lost, self.was_done = "", False
        self.late: Callable[[], Written | None] = lambda: None
        self.written: Callable[[], None] = lambda: None

    def read(self, patience: float | None = None) -> Contents:
        return Contents(self.revision, dict(self.keys), whole=True)

    def write(
        self, puts: Mapping[str, str], unless: Any = (), lease: int = 0, deletes: Any = (), seconds: float = 0
    ) -> Written | None:
        if self.lost in puts:
            self.lost, self.late = "", partial(self.write, puts, unless, lease, deletes)
            if self.was_done:
                self.late()
            raise EngineError("the node has stopped", Kind.UNREACHABLE, unknown=True)
        for its in unless:
            kept = self.keys.get(its.key, Kept("", 0, 0, 0))
            if its.created not in (None, kept.created) or its.modified not in (None, kept.modified):
                return None
        self.revision += 1
        for key in deletes:
            self.keys.pop(key, None)
        for key, value in puts.items():
            created = self.keys[key].created if key in self.keys else self.revision
            self.keys[key] = Kept(value, created, self.revision, lease if records.leased(key) else 0)
        self.written()
        return Written(self.revision)


class Hands:
    """An application that records what its member calls."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.version = 1
        self.standing, self.highest_generation, self.drained = (lambda: (self.version, 20)), (lambda: 0), dict

    def lead(self, term: int) -> None:
        self.told.append(f"m1 leads in term {term}")

    def stand_by(self) -> None:
        self.told.append("m1 stands by")

    def drain_all(self, drains: Mapping[str, Drain]) -> None:
        self.told.append(f"m1 follows drains: {' '.join(drains) or 'nothing'}")

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class World:
    def handle(self, step: Step) -> str:
        said = getattr(self, "do_" + step.command.replace("-", "_"))(*step.words, **step.options)
        told = [self.hands.told.pop(0) for _ in self.hands.told[:]]
        return "\n".join([said or "", *told, ", ".join(self._keys())])

    def _keys(self) -> list[str]:
        found = {key: records.read(key, kept.value) for key, kept in sorted(self.engine.keys.items())}
        return [f"{key} {SHOWN[type(record)](record)}" for key, record in found.items() if type(record) in SHOWN]

    def do_member(self, k: str = "4") -> None:
        """Let m1 begin with a lease, in a cluster of k-port switches that names it leader."""
        self.engine, self.hands = MemoryEngine(), Hands()
        charter = Charter(records.FORMAT, TREE.document(), "mac")
        identity = Identity("m1", "http://m1", "1", "")
        self.its = Member(self.engine, identity, charter, 10, self.hands, lambda: 100.0, SECRET)  # type: ignore[arg-type]  # stand-ins
        self.engine.write({"charter": records.write(replace(charter, fabric=FatTree(int(k)).document()))})
        self.its.candidacy.granted(LEASES["m1"], 10.0, 100.0)
        self.do_name("m1", "5")

    def do_name(self, leader: str, term: str, secret: str = SECRET) -> str:
        self.do_takes_over(leader, term, secret)
        self.do_act()
        return "" if secret == SECRET else f"writers are sent to {self.its.leader_url()}"

    def do_takes_over(self, leader: str, term: str, secret: str = SECRET) -> None:
        """Let the engine name a leader; m1 has not heard of it."""
        self.engine.write({}, deletes=["leader"])
        self._put("leader", Leader(leader, int(term), "").sealed(secret), LEASES[leader])

    def do_act(self, knows: str = "yes") -> None:
        """Let m1 act, by what the engine has now or by what it knew before."""
        if knows == "yes":
            self.its.mirror.apply(self.engine.read())
        self.its._act()

    def _put(self, key: str, record: records.Record, lease: int = 0) -> None:
        self.engine.write({key: records.write(record)}, lease=lease)

    def do_view(self, version: str) -> None:
        """Write a view as no member does."""
        self._put("view", CommittedView(5, int(version), {}))

    def do_drains(self, *names: str) -> None:
        """Write drains as no member does."""
        self._put("drains", records.DrainsRecord(1, names, {}))

    def do_operator(self, verb: str, *names: str) -> None:
        """Have an operator drain these elements, and no other, at this leader, who hears of it before the answer comes."""
        self.engine.written = self.do_act
        self.its.write_drains(dict.fromkeys(names, Drain()))
        self.engine.written = lambda: None

    def do_step_down(self) -> None:
        self.its.step_down()

    def do_fabric(self, k: str) -> str:
        """Have m1 read a changed fabric file; say what the members have to agree on then."""
        try:
            self.its.change_fabric(FatTree(int(k)).document())
        except UndecidedError as error:
            return f"refused: {error}"
        charter = records.read("charter", self.engine.keys["charter"].value)
        assert isinstance(charter, Charter)
        return f"the charter has {charter.fabric['pods']} pods"

    def do_lose(self, key: str, done: str = "no") -> None:
        self.engine.lost, self.engine.was_done = key, done == "yes"

    def do_late(self) -> str:
        return "it is not done" if self.engine.late() is None else "it is done"

    def do_enter(self, version: str) -> str:
        self.hands.version = int(version)
        self.its.mirror.apply(self.engine.read())
        return self._tried(self.its._enlistment.enter)

    def do_commit(self, version: str) -> str:
        return self._tried(lambda: self.its._commits.commit(Proposal(5, int(version), Failures(TREE), 0.0)))

    def do_drain(self, *names: str) -> str:
        return self._tried(lambda: self.its._commits.write_drains(dict.fromkeys(names, Drain())))

    def _tried(self, write: Callable[[], bool | None]) -> str:
        try:
            return "another attempt is needed" if write() is False else "done"
        except DeposedError:
            return "another member leads"
        except EngineError as error:
            return f"failed: {error}"


SHOWN: dict[type, Callable[[Any], str]] = {
    Leader: lambda its: its.name,
    CommittedView: lambda its: str(its.version),
    records.DrainsRecord: lambda its: " ".join(its.names) or "nothing",
    records.MemberRecord: lambda its: f"at version {its.version}",
}


@each_script(__file__, "writes")
def test_writes(script: Script) -> None:
    script.play(World().handle)
