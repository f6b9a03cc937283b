"""Requests and answers of etcd's gateway, with answers as etcd 3.4.23 gave them."""

import json
from base64 import b64encode

from hypothesis import given
from hypothesis import strategies as st

from sopa_ryu.cluster import gateway
from sopa_ryu.cluster.gateway import Answer, Condition, Contents, Kept, Kind, WatchReader, Written
from tests.cluster.conftest import failure

HEADER = '"header":{"cluster_id":"14841639068965178418","member_id":"1","revision":"9","raft_term":"2"}'


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def answered(more: str, begin: str = "{") -> Answer:
    return gateway.answer_of(200, (begin + HEADER + more).encode())


def test_all_keys_are_those_below_the_name() -> None:
    body = gateway.all_keys("sopa").body
    assert body == {"key": encoded("/sopa/"), "range_end": encoded("/sopa0")}


def test_a_write_binds_only_keys_that_end_with_their_writer() -> None:
    conditions = [Condition("leader", created=0), Condition("term", modified=4)]
    request = gateway.transaction("sopa", {"term": "7", "leader": "m1"}, conditions, 77, ["view"])
    leader, term, view = ({"key": encoded(f"/sopa/{name}")} for name in ("leader", "term", "view"))
    assert not request.repeatable
    assert json.loads(request.content()) == {
        "compare": [
            {**leader, "target": "CREATE", "result": "EQUAL", "create_revision": "0"},
            {**term, "target": "MOD", "result": "EQUAL", "mod_revision": "4"},
        ],
        "success": [
            {"request_put": {**term, "value": encoded("7")}},
            {"request_put": {**leader, "value": encoded("m1"), "lease": "77"}},
            {"request_delete_range": view},
        ],
        "failure": [],
    }


def test_a_write_says_whether_it_happened_and_a_lease_whether_it_is_alive() -> None:
    write, grant, renewal = gateway.transaction("sopa", {}), gateway.grant(2), gateway.renewal(7587)
    assert write.result(answered(',"succeeded":true,"responses":[{}]}')) == Written(9)
    assert write.result(answered("}")) is None
    assert grant.result(answered(',"ID":"7587","TTL":"2"}')) == (7587, 2)
    assert renewal.result(answered(',"ID":"7587","TTL":"2"}}\n', '{"result":{'))
    assert not renewal.result(answered(',"ID":"7587"}}\n', '{"result":{'))
    assert "not as etcd writes it" in str(failure(lambda: grant.result(answered(',"ID":"7587"}'))))


def test_contents_are_read_without_the_name() -> None:
    pair = f'{{"key":"{encoded("/sopa/leader")}","create_revision":"3","mod_revision":"5","value":"e30=","lease":"77"}}'
    found = gateway.all_keys("sopa").result(answered(f',"kvs":[{pair}],"count":"1"}}'))
    assert found == Contents(9, {"leader": Kept("{}", 3, 5, 77)}, whole=True)


@given(st.integers(0, 599), st.binary() | st.text().map(lambda text: json.dumps({"error": text}).encode()))
def test_whatever_answers_it_is_an_answer_or_an_error(status: int, content: bytes) -> None:
    assert failure(lambda: gateway.answer_of(status, content)).kind in Kind


@given(st.text(), st.integers(-1, 20), st.integers(0, 599))
def test_a_refused_write_is_not_said_to_be_unknown(text: str, code: int, status: int) -> None:
    error = gateway.error_of(status, f"etcdserver: permission denied {text}", code, text)
    assert not error.unknown or error.kind != Kind.REFUSED


def message(*events: dict[str, object], **more: object) -> bytes:
    header = {"cluster_id": "14841639068965178418", "revision": "9"}
    return json.dumps({"result": {"header": header, **more, **({"events": events} if events else {})}}).encode() + b"\n"


def put(key: str, value: str, revision: int) -> dict[str, object]:
    pair = {"key": encoded(f"/sopa/{key}"), "value": encoded(value)}
    return {"kv": {**pair, "create_revision": "3", "mod_revision": str(revision)}}


def test_a_watch_goes_on_from_the_last_change_that_was_read() -> None:
    reader = WatchReader("sopa", 4)
    assert list(reader.feed(message(created=True))) == [Contents(4, {})]
    assert reader.created
    # the node is at 9: what happened between is still to come
    assert reader.revision == 4
    written = list(reader.feed(message(put("view", "1", 5), put("view", "2", 6))))
    assert written == [Contents(6, {"view": Kept("2", 3, 6, 0)})]
    deletion = {"type": "DELETE", "kv": {"key": encoded("/sopa/leader"), "mod_revision": "8"}}
    assert list(reader.feed(message(deletion))) == [Contents(8, {"leader": None})]
    assert reader.revision == 8


@given(st.lists(st.integers(1, 40), max_size=20))
def test_a_watch_is_read_in_pieces_of_any_length(lengths: list[int]) -> None:
    data = message(created=True) + message(put("view", "1", 5)) + message(put("term", "ü", 7))
    reader = WatchReader("sopa", 4)
    seen = []
    for length in [*lengths, len(data)]:
        piece, data = data[:length], data[length:]
        seen += list(reader.feed(piece))
    views = Contents(5, {"view": Kept("1", 3, 5, 0)}), Contents(7, {"term": Kept("ü", 3, 7, 0)})
    assert seen == [Contents(4, {}), *views]


def test_the_last_words_of_a_node_have_no_end_of_line() -> None:
    reader = WatchReader("sopa", 4)
    reader.ended()
    words = b'{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader","http_status":"Service Unavailable"}}'
    assert list(reader.feed(words[:20])) == []
    reader.ended()  # it was cut off
    assert list(reader.feed(words[20:])) == []
    assert "no leader" in str(failure(reader.ended))
