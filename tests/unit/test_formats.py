"""What the readers of messages, records and addresses take, and what they say of all else, by scripts.

A step gives a reader a text, or a change of a message that is right: ``without=FIELD`` takes a field away.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any

from flowrules import label
from sopa_ryu.agent.agent_options import AgentOptions, parse_arbiter
from sopa_ryu.agent.label.spray import Spray
from sopa_ryu.channel import mcs, messages, protocol, relayed
from sopa_ryu.channel.arbiter_notifier import asked_term
from sopa_ryu.channel.client import ClientOptionError, channel_url
from sopa_ryu.channel.mcs import HostList
from sopa_ryu.channel.messages import GapError, LowerTermError, Outcome, Stream, TraceRequest
from sopa_ryu.channel.probe_lists import HEADER, ProbeLists
from sopa_ryu.channel.relay_desk import RelayDesk
from sopa_ryu.channel.relayed import AnsweringHosts, McsBegun, McsChange, McsEvents, McsLists
from sopa_ryu.cluster import address, gateway, records
from sopa_ryu.cluster.gateway import EngineError, HistoryGone, WatchReader
from sopa_ryu.fabric.view import View
from sopa_ryu.southbound import lldp
from tests.cluster.conftest import failure
from tests.helpers.golden import Script, Step, each_script
from topologies import Failures, FatTree

TREE = FatTree(4)
HOSTS = list(TREE.hosts())
HERE, THERE = IPv4Address("10.0.0.2"), IPv4Address("10.0.0.3")
RECORDS: dict[str, records.Record] = {
    "charter": records.Charter(records.FORMAT, TREE.document(), "mac"),
    "term": records.Term(3),
    "leader": records.Leader("m1", 7, "http://192.0.2.1:8080"),
    "view": records.CommittedView(7, 12, {"a0_0-c0_1": "down"}),
    "drains": records.DrainsRecord(7, ("a0_0", "e0_0-a0_1")),
    "members/m1": records.MemberRecord("m1", "http://192.0.2.1:8080", "3.0", 1, "leader", 7, 12, 20, 1_790_000_000, ""),
}


def view(text: str, failed: dict[str, str] | None = None) -> View:
    """Return a view by its cluster, epoch and version, ``sopa:7.3`` or ``7.3``."""
    cluster, _, number = text.rpartition(":")
    epoch, version = number.split(".")
    return View(int(epoch), int(version), Failures(TREE, failed or {}), cluster)


IN_FORCE = view("7.3", {"a0_0": "down", "e1_0-a1_0": "drained"})


def changed(right: str, change: str, without: str = "") -> str:
    fields: dict[str, Any] = json.loads(right) | json.loads(change)
    fields.pop(without, None)
    return json.dumps(fields)


def without_details(problem: object) -> str:
    """Return a problem without the words of Python's own readers, which differ from release to release."""
    return re.sub(
        r"(no JSON(?! object)|ADDRESS:PORT|ADDRESS:8080|no base64|recursion depth exceeded|not a message of a watch)[: ][(:]?.*",
        r"\1",
        str(problem),
    )


READERS: dict[str, Callable[..., str]] = {
    "acknowledged": lambda text, times="1": str(protocol.answer(text * int(times), IN_FORCE)),
    "acknowledged_at": lambda now, acknowledged: str(protocol.answer(protocol.ack(view(acknowledged), 0), view(now))),
    "term_of_an_arbiter": lambda text: str(asked_term({"term": [text]})),
    "agent": lambda **said: str(mcs.requested({name: [value] for name, value in said.items()})),
    "record": lambda key, change, without="": str(records.read(key, changed(records.write(RECORDS[key]), change, without))),
    "value": lambda key, text, times="1": str(records.read(key, text * int(times))),
    "arbiter": lambda text: str(parse_arbiter(text)),
    "controller": lambda url: channel_url(url, AgentOptions((url,)).channel(HERE)),
    "mac": lambda text: str(label.parse_mac(text)),
    "spray": lambda rules: str(Spray.of(rules)),
    "frame": lambda octets: str(lldp.parse(bytes.fromhex(octets))),
}


class Readers:
    """The readers by their commands; in force is version 3 of epoch 7, in which a0_0 and e1_0-a1_0 have failed."""

    def __init__(self) -> None:
        self._lists = ProbeLists()
        self._desk = RelayDesk(TREE, self._lists)
        self._relay, _ = self._desk.entered("r1", "192.0.2.1", object())
        self._desk.received(self._relay, messages.encode(AnsweringHosts((0,), traces=True, mcs=True)))
        self._desk.bring()
        while self._desk.due(self._relay) is not None:
            pass

    def handle(self, step: Step) -> str:
        try:
            name = step.command.replace("-", "_")
            return (READERS.get(name) or getattr(self, f"do_{name}"))(*step.words, **step.options)
        except GapError as error:
            return f"gap: {error}"
        except LowerTermError as error:
            return f"lower term: {error}"
        except records.RecordError as error:
            what, _, mend = str(error).partition(". It was changed by hand or by another program. ")
            assert mend.startswith("Put its value back, or delete the key") or "none of SOPA's" in what
            return f"rejected: {without_details(what)}"
        except (ValueError, ClientOptionError) as error:
            return f"rejected: {without_details(error)}"

    def do_message(self, text: str, held: str = "yes") -> str:
        return self._received(text, IN_FORCE if held == "yes" else None)

    def do_snapshot(self, change: str, without: str = "") -> str:
        return self._received(changed(protocol.snapshot(IN_FORCE, HERE), change, without), IN_FORCE)

    def do_delta(self, change: str) -> str:
        return self._received(changed(protocol.delta(IN_FORCE, view("7.4")), change), IN_FORCE)

    def do_delta_of(self, base: str, after: str, held: str = "yes") -> str:
        return self._received(protocol.delta(view(base), view(after)), IN_FORCE if held == "yes" else None)

    def do_over(self, held: str, sent: str) -> str:
        return self._received(protocol.snapshot(view(sent), HERE), view(held, {"a0_0": "down"}))

    def _received(self, text: str, held: View | None) -> str:
        found = protocol.follow(messages.from_controller(text), held, HERE)
        return "nothing changes" if found is held else f"in force: {found.epoch}.{found.version}" if found else "nothing"

    def do_list(self, change: str) -> str:
        right = protocol.host_change(HostList(1, frozenset(), 1, True), HostList(2, frozenset([HERE]), 1, True))
        return str(messages.from_controller(changed(right, change)))

    def do_trace(self, change: str, times: str = "1") -> str:
        fields = json.loads(change)
        if "streams" in fields:
            fields["streams"] *= int(times)
        stream = Stream(IPv4Address("10.2.1.3"), 0, 1)
        right = messages.encode(TraceRequest(3, count=20, interval_ms=10.0, streams=(stream,)))
        return str(messages.from_controller(changed(right, json.dumps(fields))))

    def do_traced(self, change: str, times: str = "1", **octets: str) -> str:
        """Receive an answer; ``probes`` and ``labels`` are given as octets."""
        fields = json.loads(change)
        fields |= {name: b64encode(bytes.fromhex(its) * int(times)).decode() for name, its in octets.items()}
        right = messages.encode(*messages.trace_answers(3, (Outcome(0, 0, 5),), done=True))
        return str(messages.from_agent(changed(right, json.dumps(fields))))

    def do_relay(self, text: str, times: str = "1") -> str:
        return self._from_relay(text * int(times))

    def do_relay_tells(self, change: str) -> str:
        return self._from_relay(changed(messages.encode(McsEvents(1, (McsBegun(1, (0,)),), (), (), ())), change))

    def do_reports(self, place: str, length: str, size: str = "3") -> str:
        """Receive so many bytes of a relay's report, which has records of so many."""
        return self._from_relay((HEADER.pack(int(place), 0, int(size)) + bytes(int(size)))[: int(length)])

    def _from_relay(self, message: str | bytes) -> str:
        try:
            self._desk.received(self._relay, message)
        except ValueError:
            assert self._lists.counts["malformed"]
            assert (self._lists.hosts(), self._lists.take_waiting(), self._desk.bring()) == ([HOSTS[0]], b"", [])
            raise
        return "taken"

    def do_leader(self, text: str) -> str:
        return str(list(relayed.from_leader(text, len(HOSTS))))

    def do_leader_tells(self, change: str) -> str:
        return self.do_leader(changed(messages.encode(McsLists(1, True, (McsChange(1, (0,), ()),))), change))

    def do_etcd(self, status: str, code: str, text: str) -> str:
        """Say what an error of etcd's gateway means, as an answer and in a stream."""
        alone = {"error": text, "message": text, "code": int(code)}
        in_stream = {"error": {"grpc_code": int(code), "http_code": int(status), "message": text, "http_status": ""}}
        error = failure(lambda: gateway.answer_of(int(status), json.dumps(alone).encode()))
        assert vars(error) == vars(failure(lambda: gateway.answer_of(200, json.dumps(in_stream).encode() + b"\n")))
        more = [name.replace("_", " ") for name in ("unknown", "sign_in", "no_lease") if getattr(error, name)]
        return ", ".join([f"{error.kind.name}: {error}", *more])

    def do_watch(self, text: str) -> str:
        """Read a line of a watch, which ends it."""
        try:
            return str(list(WatchReader("sopa", 4).feed(text.encode() + b"\n")))
        except HistoryGone:
            return "history gone"
        except EngineError as error:
            return f"{error.kind.name}: {without_details(error)}"

    def do_label(self, *hops: str) -> str:
        """Say how the uplinks of a path are written: as an option, and as an Ethernet address that is read back."""
        up = tuple(map(int, hops))
        assert label.parse_mac(label.carrier_mac(up)) == label.hop_bytes(up)
        return f"{label.option(up)} {label.carrier_mac(up)}"

    def do_lldp(self, cut: str = "0", **tlvs: str) -> str:
        """Read a frame of values by their types; so many octets of its end are missing."""
        frame = bytes.fromhex("0180c200000e001b21aabbcc88cc")
        for kind, text in tlvs.items():
            value = text.encode().decode("unicode_escape").encode("latin-1")
            frame += (int(kind) << 9 | len(value)).to_bytes(2) + value
        return str(lldp.parse(frame[: len(frame) - int(cut)]))

    def do_engine(self, text: str) -> str:
        its = address.parse(text)
        assert address.parse(str(its)) == its
        return f"{' '.join(map(str, its.endpoints))}, named {its.name}"


@each_script(__file__, "formats")
def test_formats(script: Script) -> None:
    script.play(Readers().handle)
