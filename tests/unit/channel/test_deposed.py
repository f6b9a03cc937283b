"""A controller whose switches have another master sends its agents away, until it is their master again."""

from __future__ import annotations

import pytest

from sopa_ryu.channel.agent_session import Phase
from sopa_ryu.channel.claims import DeposedClaimError
from sopa_ryu.channel.effects import Accept, Cut, Reject
from sopa_ryu.channel.notifier import Notifier
from sopa_ryu.fabric.view import View
from topologies import Failures, FatTree

TREE = FatTree(4)
VIEW = View(1, 1, Failures(TREE))


@pytest.mark.parametrize("count", [0, 1, 16])
def test_every_agent_is_sent_away_and_none_accepted_meanwhile(count: int) -> None:
    notifier = Notifier(TREE, lambda: VIEW)
    hosts = list(TREE.hosts())
    sessions = [notifier.connected(host, str(TREE.ip(host)), None, None, 0.0)[0] for host in hosts[:count]]
    assert notifier.depose(True) == [Cut(session) for session in sessions]
    assert not notifier.sessions
    assert all(session.phase is Phase.CLOSED for session in sessions)
    (rejected,) = notifier.claim(hosts[0], "192.0.2.1", "claimant", 1.0)
    assert isinstance(rejected, Reject)
    assert isinstance(rejected.error, DeposedClaimError)
    assert notifier.refused["claims"] == 1
    assert notifier.depose(False) == []
    assert notifier.claim(hosts[0], "192.0.2.1", "claimant", 2.0) == [Accept("claimant")]


def test_a_claim_that_waits_for_the_holder_is_answered() -> None:
    notifier = Notifier(TREE, lambda: VIEW)
    host = next(TREE.hosts())
    notifier.connected(host, "192.0.2.1", None, None, 0.0)
    notifier.claim(host, "192.0.2.2", "waits", 1.0)
    decided = [effect for effect in notifier.depose(True) if isinstance(effect, Reject | Accept)]
    assert [type(effect) for effect in decided] == [Reject]
    assert [effect.claimant for effect in decided] == ["waits"]


def test_an_agent_whose_claim_was_accepted_just_before_is_sent_away() -> None:
    notifier = Notifier(TREE, lambda: VIEW)
    host = next(TREE.hosts())
    notifier.claim(host, "192.0.2.1", "claimant", 0.0)
    notifier.depose(True)
    session, effects = notifier.connected(host, "192.0.2.1", None, None, 0.1)
    assert effects == [Cut(session)]
    assert not notifier.sessions
