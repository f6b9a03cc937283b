"""A switch's database that lies to the set-up checker and the keeper of BFD, beside that of all other switches."""

import json
import logging
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from flowrules.model import Table
from sopa_ryu.fabric.state import FabricState
from sopa_ryu.southbound import bfd, bfd_keeper, setup_checker, switch_database
from sopa_ryu.southbound.bfd_keeper import BfdKeeper
from sopa_ryu.southbound.setup_checker import SetupChecker
from tests.fuzz.garble import TEXTS, text
from tests.fuzz.peers import Broken
from tests.helpers.memory import resident_mib
from tests.models.memory_ovsdb import MemoryOvsdb
from topologies import FatTree, ovsdb
from topologies.ovsdb import OvsdbError

TREE = FatTree(4)
LIAR = TREE.switch("e3_1")
OWN, OTHERS = "127.0.0.9", "127.0.0.1"
COLUMNS = {table: {**columns, **bfd._COLUMNS.get(table, {})} for table, columns in switch_database._COLUMNS.items()}
DEFAULTS: dict[str, Any] = {
    "name": "br0", "fail_mode": "secure", "protocols": "OpenFlow13", "controller": ["uuid", "Controller 0"], "stp_enable": False,
    "rstp_enable": False, "other_config": ["map", [["disable-in-band", "true"]]], "cfm_mpid": ["set", []], "ssl": ["set", []],
    "target": "tcp:192.0.2.9:6653", "is_connected": True,
    "flow_tables": ["map", [[int(its), ["uuid", "Flow_Table 0"]] for its in Table]],
    "prefixes": ["set", ["ip_dst", "ip_src", "ipv6_dst", "ipv6_src"]],
}  # fmt: skip
ATOMS: tuple[Any, ...] = (*TEXTS, 0, -1, 1 << 70, True, 1.5, None, {}, "secure", "standalone", "e0_0", f"{TREE.dpid(LIAR):016x}")
MAX_MIB, MAX_LOG_BYTES, MAX_IN_VAIN = 50.0, 100_000, 2
"""In vain: so many questions a round, each of which waits for seconds."""


def plan(draw: random.Random) -> Iterator[str]:
    """Yield steps: values of columns, numbers of rows, bridges of other switches, and whether the database answers."""
    while True:
        match draw.choice(("value", "value", "value", "rows", "bridges", "answers")):
            case "value":
                table = draw.choice([*COLUMNS])
                yield f"value {table} {draw.choice([*COLUMNS[table]])} {json.dumps(_value(draw))}"
            case "rows":
                yield f"rows {draw.choice([*COLUMNS])} {draw.choice((0, 2, 50, 3000))}"
            case "bridges":
                yield f"bridges {' '.join(TREE.name(its) for its in draw.sample(list(TREE.switches()), draw.choice((1, 3))))}"
            case "answers":
                yield f"answers {draw.choice(('yes', 'no'))}"
        yield "round"


def _value(draw: random.Random) -> Any:
    def atom() -> Any:
        return draw.choice(ATOMS) if draw.random() < 0.7 else text(draw)

    several = [atom() for _ in range(draw.choice((0, 1, 2, 9, 5000)))]
    pairs = [[each, atom()] for each in several[:50]]
    return draw.choice(
        (atom(), ["set", several], ["map", pairs], ["uuid", atom()], ["set", [["uuid", each] for each in several]], several)
    )


class LyingDatabase(logging.Handler):
    """The checker and the keeper of a fabric, one of whose databases lies; counts what they log."""

    def __init__(self, stack: ExitStack) -> None:
        super().__init__()
        self._lies: dict[tuple[str, str], Any] = {}
        self._rows: dict[str, int] = {}
        self._refuses, self.logged = False, 0
        self._asked = Counter[str]()
        self._memory = MemoryOvsdb(TREE, lambda its: OWN if its == LIAR else OTHERS)
        self._memory.enabled_at.clear()
        stack.enter_context(patch.object(ovsdb, "transact", self._transact))
        addresses = [f"tcp:{host}:6640" for host in (OTHERS, OWN)]
        self._state = FabricState(TREE, epoch=1)
        connections: Any = {its: SimpleNamespace(address=OWN if its == LIAR else OTHERS) for its in TREE.switches()}
        for switch in TREE.switches():
            self._state.switch_heard(switch, {}, 0)
        self._state.settle(0)
        self._checker = SetupChecker(self._state, connections, addresses)
        self._keeper = BfdKeeper(self._state, connections, addresses)
        for log in (setup_checker.LOG, bfd_keeper.LOG):  # others' tests in this process may log, too
            log.addHandler(self)
            stack.callback(log.removeHandler, self)
        self._round()
        self._right = {end: dict(its) for end, its in self._memory.bfd.items() if end[0] != LIAR}
        self._since, self._before, self._most = time.monotonic(), resident_mib(_pid()), 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Count a line."""
        self.logged += len(record.getMessage())

    def _transact(self, address: str, operations: list[dict[str, Any]], timeout: float, tls: object = None) -> list[dict[str, Any]]:
        """Answer as a client of JSON-RPC has it: what a peer may do on the wire, tests/unit/topologies/test_ovsdb.py shows."""
        host = OWN if OWN in address else OTHERS
        self._asked[host] += 1
        if host == OWN and self._refuses:
            raise OvsdbError(f"{address}: no answer within {timeout:g} s")
        return [self._operate(host, operation) for operation in operations]

    def _operate(self, host: str, operation: dict[str, Any]) -> dict[str, Any]:
        """Do an operation; the rows of the one that lies have its values."""
        if operation["op"] != "select":
            return self._memory.transact(host, [operation], 0)[0] if operation["table"] == "Interface" else {"count": 1}
        table = operation["table"]
        rows = self._memory.transact(host, [operation], 0)[0]["rows"] if table in ("Bridge", "Port", "Interface") else []
        if table in ("Open_vSwitch", "Controller", "Flow_Table") or (host == OWN and self._rows.get(table) and not rows):
            rows = [{}]
        rows = [
            {each: row.get(each, DEFAULTS.get(each, ["uuid", f"{table} {n}"])) for each in operation["columns"]}
            for n, row in enumerate(rows)
        ]
        if host == OWN:
            rows = [row | {each: its for (name, each), its in self._lies.items() if name == table and each in row} for row in rows]
            rows = (rows * self._rows[table])[: self._rows[table]] if table in self._rows else rows
        return {"rows": rows}

    # -- `tests.fuzz.peers.Peer` ------------------------------------------------------------------------------------------

    def play(self, step: str) -> None:
        """Do one step."""
        match step.split(" ", 3):
            case ["value", table, column, value]:
                self._lies[table, column] = json.loads(value)
            case ["rows", table, count]:
                self._rows[table] = int(count)
            case ["bridges", *_]:
                self._memory.more[OWN] = [TREE.switch(name) for name in step.split()[1:]]
            case ["answers", does]:
                self._refuses = does == "no"
            case ["round"]:
                self._round()

    def _round(self) -> None:
        """Look at all databases, as the two threads of a controller do."""
        self._asked.clear()
        self._checker.check()
        self._keeper._round()
        if self._asked[OTHERS] < 2:
            raise Broken("the others' database is not read any more")
        if self._refuses and self._asked[OWN] > MAX_IN_VAIN:
            raise Broken(f"a database that does not answer is asked {self._asked[OWN]} times")

    def check(self) -> None:
        """The others are looked after as before, and nothing is changed there."""
        if wrong := {str(end): its for end, its in self._right_now().items() if its != self._right[end]}:
            raise Broken(f"BFD was changed at other switches: {wrong}")
        checked, total = self._state.setup["checked"], TREE.switch_count
        if checked < total - 1:
            raise Broken(f"{checked} of {total} switches are verified")
        if wrong := [each for each in self._state.setup["problems"] if each["switch"] not in (TREE.name(LIAR), "controller")]:
            raise Broken(f"problems of others: {wrong}"[:2000])
        if (
            not (said := json.dumps([self._state.setup, self._state.bfd], ensure_ascii=False)).isprintable()
            or len(said) > MAX_LOG_BYTES
        ):
            raise Broken(f"what is said of it is not printable, or has {len(said)} characters")
        self._most = max(self._most, resident_mib(_pid()) - self._before)
        if self._most > MAX_MIB or self.logged > MAX_LOG_BYTES * (1 + (time.monotonic() - self._since) // 60):
            raise Broken(f"{self._most:.0f} MiB more, and {self.logged} bytes logged in {time.monotonic() - self._since:.0f} s")

    def _right_now(self) -> dict[Any, dict[str, str]]:
        return {end: its for end, its in self._memory.bfd.items() if end in self._right}

    def heal(self) -> None:
        """Say what is true; then every switch is verified."""
        self._lies.clear()
        self._rows.clear()
        self._refuses = False
        self._memory.more.clear()
        self._round()
        if self._state.setup["checked"] != TREE.switch_count or self._state.setup["problems"]:
            raise Broken(f"not as at the start: {self._state.setup}"[:2000])

    def said(self) -> str:
        return f"at most {self._most:.0f} MiB more, {self.logged} bytes logged"

    @classmethod
    @contextmanager
    def start(cls, _directory: Path) -> Iterator["LyingDatabase"]:
        """Start both."""
        with ExitStack() as stack:
            yield cls(stack)


def _pid() -> int:
    return int(Path("/proc/self").resolve().name)
