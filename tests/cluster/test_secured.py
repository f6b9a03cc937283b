"""A controller and a relay whose engine wants TLS and a user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.emulation.processes import ControllerProcess, RelayProcess, free_ports
from sopa_ryu.rest.access import AGENTS, OPERATORS, SECRET
from tests.helpers.certificates import Authority
from tests.helpers.waiting import eventually
from topologies.lab.etcd import PrivateEtcd, Tls

pytestmark = pytest.mark.switch

USER, PASSWORD = "sopa", "correct horse"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / "ca").mkdir()
    return Authority(tmp_path / "ca")


@pytest.fixture
def etcd(tmp_path: Path, authority: Authority) -> Iterator[PrivateEtcd]:
    """A node with TLS and users."""
    node = authority.sign("node")
    with PrivateEtcd(tmp_path / "etcd", 1, Tls(authority.certificate, node.certificate, node.key)) as its:
        its.enable_users("root's", {USER: (PASSWORD, "/sopa/")})
        yield its


def test_a_controller_and_a_relay_sign_in_over_tls_once_the_password_is_right(
    etcd: PrivateEtcd, authority: Authority, tmp_path: Path
) -> None:
    openflow, rest, port = free_ports(3)
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text("wrong\n")
    access = {"ca": str(authority.certificate), "user": USER, "password-file": str(password)}
    options = [
        f"--sopa-cluster={etcd.address()}",
        *(f"--sopa-cluster-{name}={value}" for name, value in access.items()),
    ]
    relays = [f"--cluster-{name}={value}" for name, value in access.items()]
    with ControllerProcess(4, tmp_path / "m1.log", openflow, rest, options=options) as member:

        def engine() -> dict[str, Any]:
            return member.get("/cluster").json()["engine"]

        problem = eventually(lambda: engine()["problem"], lambda its: its is not None and "answered yet" not in its)
        assert "password" in problem
        password.write_text(f"{PASSWORD}\n")
        with RelayProcess(etcd.address(), tmp_path / "r1.log", port, member.state_dir, options=relays) as relay:
            told = eventually(lambda: member.get("/cluster").json(), lambda its: bool(its["leader"] and its["relays"]))
            assert told["relays"][0]["url"] == relay.url
            eventually(engine, {"reachable": True, "problem": None})
            assert {OPERATORS, AGENTS, SECRET} <= {file.name for file in member.state_dir.iterdir()}
