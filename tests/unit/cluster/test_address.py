"""The engine's address as operators write it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sopa_ryu.cluster.address import Access, AddressError, Endpoint, check_access, parse


@pytest.mark.parametrize(
    ("text", "endpoints", "name"),
    [
        ("etcd://127.0.0.1:2379", [("127.0.0.1", 2379)], "sopa"),
        ("etcd://m1,m2:4001", [("m1", 2379), ("m2", 4001)], "sopa"),
        ("etcd://m-1.example.net:1/pod_b.2-x", [("m-1.example.net", 1)], "pod_b.2-x"),
        ("etcd://[2001:db8::1]:2379,[::1]/a", [("2001:db8::1", 2379), ("::1", 2379)], "a"),
    ],
)
def test_an_address_is_read_and_written_back(text: str, endpoints: list[tuple[str, int]], name: str) -> None:
    address = parse(text)
    assert list(address.endpoints) == endpoints
    assert address.name == name
    assert parse(str(address)) == address


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "write etcd://192.0.2.1:2379"),
        ("http://127.0.0.1:2379", "is no address of an engine"),
        ("etcd://", "'' is no node"),
        ("etcd://a:2379,", "'' is no node"),
        ("etcd://2001:db8::1:2379", "IPv6 address in brackets"),
        ("etcd://a b:2379", "'a b:2379' is no node"),
        ("etcd://user:password@a:2379", "is no node"),
        ("etcd://a:0", "the port of 'a:0'"),
        ("etcd://a:65536", "from 1 to 65535"),
        ("etcd://a:+1", "the port of 'a:+1'"),
        ("etcd://a:", "the port of 'a:'"),
        ("etcd://a/", "'' cannot be the cluster's name"),
        ("etcd://a/b/c", "'b/c' cannot be"),
        ("etcd://a/..", "a letter or digit first"),
        ("etcd://a,b:2379,a:2379", "names a:2379 more than once"),
    ],
)
def test_a_wrong_address_is_rejected_with_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse(text)
    assert said in str(caught.value)


def test_an_endpoint_of_ipv6_is_written_with_brackets() -> None:
    assert str(Endpoint("::1", 2379)) == "[::1]:2379"


def test_what_belongs_together_is_given_together() -> None:
    file = Path("x.pem")
    for wrong in (Access(cert=file), Access(key=file), Access(user="sopa"), Access(password_file=file)):
        with pytest.raises(AddressError, match="belong together"):
            check_access(wrong)
    check_access(Access(file, file, file, "sopa", file))
    assert Access(ca=file).tls
    assert Access(cert=file, key=file).tls
    assert not Access(user="sopa", password_file=file).tls
