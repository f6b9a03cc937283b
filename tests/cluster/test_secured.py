"""A controller and a relay whose engine wants TLS and a user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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


def password(directory: Path, text: str) -> Path:
    file = directory / f"password-{len(text)}"
    file.write_text(f"{text}\n")
    file.chmod(0o600)
    return file


def test_a_controller_and_a_relay_sign_in_over_tls_and_a_wrong_password_is_said(
    etcd: PrivateEtcd, authority: Authority, tmp_path: Path
) -> None:
    openflow, rest, refused_openflow, refused_rest, port = free_ports(5)
    right, wrong = password(tmp_path, PASSWORD), password(tmp_path, "wrong")
    options = [
        f"--sopa-cluster={etcd.address()}",
        f"--sopa-cluster-ca={authority.certificate}",
        f"--sopa-cluster-user={USER}",
    ]
    relays = [f"--cluster-ca={authority.certificate}", f"--cluster-user={USER}", f"--cluster-password-file={right}"]
    with (
        ControllerProcess(
            4, tmp_path / "m1.log", openflow, rest, options=[*options, f"--sopa-cluster-password-file={right}"]
        ) as member,
        ControllerProcess(
            4,
            tmp_path / "m2.log",
            refused_openflow,
            refused_rest,
            options=[*options, f"--sopa-cluster-password-file={wrong}"],
        ) as refused,
        RelayProcess(etcd.address(), tmp_path / "r1.log", port, member.state_dir, options=relays) as relay,
    ):
        cluster = eventually(lambda: member.get("/cluster").json(), lambda its: bool(its["leader"] and its["relays"]))
        assert cluster["relays"][0]["url"] == relay.url
        assert cluster["engine"] == {"reachable": True, "problem": None}
        problem = eventually(
            lambda: refused.get("/cluster").json()["engine"]["problem"],
            lambda its: its is not None and "answered yet" not in its,
        )
        assert "password" in problem
        assert {OPERATORS, AGENTS, SECRET} <= {file.name for file in member.state_dir.iterdir()}
