"""An etcd of three nodes for all tests, and clients of it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sopa_ryu.cluster.address import NO_ACCESS, Access, parse
from sopa_ryu.cluster.engine import Engine, EngineError
from topologies.lab.etcd import PrivateEtcd

Connect = Callable[..., Engine]


@pytest.fixture(scope="session")
def shared_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEtcd]:
    with PrivateEtcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture
def etcd(shared_etcd: PrivateEtcd) -> Iterator[PrivateEtcd]:
    """Three nodes that all run, before the test and after it, without any key."""
    shared_etcd.ctl("del", "--prefix", "/")
    yield shared_etcd
    shared_etcd.mend()


@pytest.fixture
def lone_etcd(tmp_path: Path) -> Iterator[PrivateEtcd]:
    with PrivateEtcd(tmp_path / "etcd", 1) as etcd:
        yield etcd


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Return a function that makes a client of an etcd; ``first`` is the node that it begins with.

    It waits long for an answer, as the disk and the processors may be busy: tests of nodes that do not answer say for how long.
    """
    engines: list[Engine] = []

    def made(etcd: PrivateEtcd, access: Access = NO_ACCESS, first: int = 0, name: str = "sopa", timeout: float = 20.0) -> Engine:
        engines.append(Engine(parse(etcd.address(name, first)), access, timeout))
        return engines[-1]

    yield made
    for engine in engines:
        engine.close()


def failure(ask: Callable[[], object]) -> EngineError:
    with pytest.raises(EngineError) as caught:
        ask()
    return caught.value
