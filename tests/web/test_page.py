"""The live page of a running controller, as an operator sees and uses it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys
from websockets.sync.client import connect

from sopa_ryu.southbound import lldp
from tests.helpers.browser import Page
from tests.helpers.fabrics import Fabric
from tests.helpers.waiting import Containing, eventually

pytestmark = pytest.mark.switch


@contextmanager
def cut(fabric: Fabric, switch: str, port: int) -> Iterator[None]:
    fabric.dummy.set_port(fabric.tree.switch(switch), port, False)
    try:
        yield
    finally:
        fabric.dummy.set_port(fabric.tree.switch(switch), port, True)
        fabric.controller.wait_until(lambda: not fabric.controller.fabric()["failures"], "the link was used again")


def drained(fabric: Fabric) -> list[str]:
    names: list[str] = fabric.controller.get("/drains").json()["drains"]
    return names


def test_a_cut_link_shows_at_once_with_the_paths_that_it_excludes_and_its_healing_too(page: Page, fabric: Fabric) -> None:
    page.show_paths("h0_0_2", "h2_0_3")
    with cut(fabric, "a0_0", 3):
        eventually(lambda: page.state("a0_0-c0_0"), "failed")
        assert page.names(".links [data-state=failed]", "link") == ["a0_0-c0_0"]
        assert page.names(".marks text", "key") == ["a0_0-c0_0"]
        assert page.text("#problem-lists h3") == "Failed (1)"
        eventually(lambda: page.text("#problem-lists li"), Containing("a0_0-c0_0down; since "))  # it may be silent before
        assert not page.one("#healthy").is_displayed()
        eventually(lambda: page.text("#paths-summary"), Containing("3 candidate paths of 4"))
        assert "9e040000" not in page.text(".paths-list code")
        eventually(lambda: page.text(".path em").strip(), "link a0_0-c0_0 down")
        assert page.names(".halo.excluded", "key") == ["a0_0-c0_0", "a2_0-c0_0"]
    eventually(lambda: page.text("#paths-summary"), Containing("4 candidate paths of 4"))
    eventually(lambda: page.state("a0_0-c0_0"), "ok")
    eventually(lambda: page.one("#healthy").is_displayed())
    assert page.text("#problem-lists") == ""
    assert page.errors() == []


def test_a_switch_without_a_channel_is_missing_and_a_dead_one_fails(page: Page, fabric: Fabric) -> None:
    def plug(up: bool) -> None:
        for pod in range(4):
            fabric.dummy.set_port(fabric.tree.switch(f"a{pod}_1"), 3, up)

    fabric.ovs.vsctl("set-controller", "c1_0", "tcp:127.0.0.1:9")
    try:
        eventually(lambda: page.state("c1_0"), "missing")
        eventually(lambda: page.text("#fact-switches"), "19 of 20")
        assert page.names(".links [data-state=failed]", "link") == []
        eventually(lambda: page.text("#problem-lists li"), Containing("without an OpenFlow channel; it forwards by the rules"))
        plug(False)
        eventually(lambda: page.state("c1_0"), "failed")
        links = [f"a{pod}_1-c1_0" for pod in range(4)]
        assert page.names(".links [data-state=failed]", "link") == links
        page.look_up("a2_1-c1_0")
        assert "Its switch c1_0 is down" in page.text("#chosen p")
    finally:
        plug(True)
        fabric.ovs.vsctl("set-controller", "c1_0", fabric.controller.openflow)
        fabric.controller.wait_connected(20)
    eventually(lambda: page.state("c1_0"), "ok")


def test_a_swapped_cable_is_listed_with_where_it_leads(page: Page, fabric: Fabric) -> None:
    probe = lldp.frame(fabric.tree.dpid(fabric.tree.switch("c0_1")), 1)
    fabric.ovs.appctl("netdev-dummy/receive", "a0_0-eth3", probe.hex())  # where c0_0 should be
    eventually(lambda: page.state("a0_0-c0_0"), "miswired")
    assert page.text("#problem-lists h3") == "Wiring (1)"
    assert "a0_0 port 3 leads to c0_1 port 1, not to c0_0 port 1" in page.text("#problem-lists li")
    with cut(fabric, "a0_0", 3):
        eventually(lambda: page.state("a0_0-c0_0"), "failed")
    eventually(lambda: page.state("a0_0-c0_0"), "ok")


def test_an_agent_that_does_not_answer_is_listed_as_lagging(page: Page, fabric: Fabric) -> None:
    url = f"{fabric.controller.url.replace('http', 'ws')}/sopa/v1/agents/10.0.0.2"
    token = fabric.controller.agent_token_file.read_text().strip()
    with connect(url, additional_headers={"Authorization": f"Bearer {token}"}, proxy=None, ping_interval=None) as agent:
        agent.recv(timeout=10)
        eventually(lambda: page.text("#problem-lists h3"), "Lagging agents (1)")
        assert page.text("#fact-agents") == "1 of 16, 1 behind"
        assert page.text("#problem-lists li").startswith("h0_0_2version 0, behind for ")
        assert page.names(".node[data-agent=yes]", "node") == ["h0_0_2"]
        fill = "return getComputedStyle(document.querySelector(arguments[0])).fill"
        hosts = [".node[data-node=h0_0_2] circle", ".node[data-node=h0_0_3] circle"]
        assert page.text(".legend [aria-label=Hosts] li") == "host with an agent\nwithout"
        samples = [f".legend [aria-label=Hosts] li:nth-child({number}) circle" for number in (1, 2)]
        assert [page.run(fill, each) for each in hosts] == [page.run(fill, each) for each in samples]
        assert page.run(fill, hosts[0]) != page.run(fill, hosts[1])
    eventually(lambda: page.text("#fact-agents"), "0 of 16")
    eventually(lambda: page.one("#healthy").is_displayed())


def test_two_hosts_picked_light_up_their_paths_with_words(page: Page, fabric: Fabric) -> None:
    page.show_paths("h0_0_2", "h2_0_3")
    words = page.text(".paths-list code").split("\n")
    told = fabric.controller.get("/paths", src="h0_0_2", dst="h2_0_3").json()
    assert words == [path["option"] for path in told["candidates"]] == ["9e040000", "9e040100", "9e040001", "9e040101"]
    ways = page.text(".paths-list [aria-pressed] span").split("\n")
    assert ways == [" → ".join(path["hops"]) for path in told["candidates"]]
    lit = {"h0_0_2-e0_0", "e0_0-a0_0", "e0_0-a0_1", "e2_0-a2_0", "e2_0-a2_1", "h2_0_3-e2_0"}
    lit |= {f"a{pod}_{j}-c{j}_{i}" for pod in (0, 2) for j in (0, 1) for i in (0, 1)}
    assert set(page.names(".links .lit", "link")) == lit
    assert set(page.names(".halo.candidate", "key")) == lit
    assert set(page.names(".node.picked", "node")) == {"h0_0_2", "h2_0_3"}
    # their weights are alike
    assert page.text(".path b").strip() == ""
    assert page.names(".halo.weighted", "key") == []
    page.one(".path").click()  # one of them alone
    alone = {"h0_0_2-e0_0", "e0_0-a0_0", "a0_0-c0_0", "a2_0-c0_0", "e2_0-a2_0", "h2_0_3-e2_0"}
    assert set(page.names(".halo", "key")) == alone
    page.one("#paths-clear").click()
    assert page.names(".halo", "key") == []


def test_hosts_are_picked_in_the_drawing_and_refused_names_are_explained(page: Page) -> None:
    for name in ("h0_0_2", "h0_1_2"):
        page.one(f'[data-node="{name}"]').click()
    eventually(lambda: page.text("#paths-summary"), Containing("h0_0_2 to h0_1_2, inter-rack: 2 candidate paths of 2"))
    page.one("#destination").clear()
    page.one("#destination").send_keys("h9_0_2", Keys.ENTER)
    eventually(lambda: page.one("#paths-error").is_displayed())
    assert "dst" in page.text("#paths-error")


def test_a_drain_and_its_end_from_the_page(page: Page, fabric: Fabric) -> None:
    page.give_token(fabric.controller.token_file.read_text().strip())
    page.look_up("a1_1-c1_0")
    page.press("Drain a1_1-c1_0")
    left = (
        "Without a1_1-c1_0: no pair of racks would lose its last path; capacity left between two halves: 7 links of 8 links (88 %)."
    )
    eventually(lambda: page.text("#confirm [role=status]"), left)
    assert drained(fabric) == []
    page.type("fan, ticket 4711", Keys.ESCAPE)
    assert not page.one("#confirm").is_displayed()
    page.drain("a1_1-c1_0", "fan, ticket 4711")
    eventually(lambda: page.state("a1_1-c1_0"), "drained")
    eventually(lambda: page.text("#outcome"), "a1_1-c1_0 is drained.")
    assert drained(fabric) == ["a1_1-c1_0"]
    # a drain is intended: listed, and no problem
    assert page.text("#drain-lists h3") == "Drained (1)"
    assert page.text("#drain-lists li").startswith("a1_1-c1_0fan, ticket 4711; drained since ")
    assert "; by operator from 127.0.0.1" in page.text("#drain-lists li")
    assert page.text("#problem-lists") == ""
    assert page.one("#healthy").is_displayed()
    assert page.text("#status").startswith("! Notice ")  # other tests leave hosts without an agent
    assert ": 1 drained" in page.text("#status")
    end = fabric.tree.switch("a1_1"), 3  # of the drained link itself, which is a problem now
    fabric.dummy.set_port(*end, False)
    try:
        eventually(lambda: page.text("#problem-lists li"), Containing("a1_1-c1_0down; since "))
        assert "4711; and down; since " in page.text("#drain-lists li")
        assert page.text("#status").startswith("\u00d7 Trouble ")
    finally:
        fabric.dummy.set_port(*end, True)
    eventually(lambda: page.one("#healthy").is_displayed())
    page.one("#drain-lists [aria-label='Restore a1_1-c1_0']").click()
    eventually(lambda: page.state("a1_1-c1_0"), "ok")
    assert drained(fabric) == []
    events = (
        "return [...document.querySelectorAll('#events-list tr')].map(e => [...e.cells].slice(1).map(c => c.textContent).join('|'))"
    )
    by = "operator from 127.0.0.1"
    wanted = [f"restored|a1_1-c1_0||{by}", f"drained|a1_1-c1_0|fan, ticket 4711|{by}"]
    eventually(lambda: [each for each in page.run(events) if by in each][:2], wanted)
    page.one("#events-list a[href='#a1_1-c1_0']").click()
    assert page.text("#chosen h3") == "Link a1_1-c1_0"
    assert page.one("#token").get_attribute("value") == ""
    kept = page.run("return [sessionStorage.length, localStorage.length, document.cookie]")
    assert kept == [1, 0, ""]
    page.one("#forget").click()
    assert page.run("return sessionStorage.length") == 0


def test_a_wrong_token_and_what_cannot_be_drained_are_explained(page: Page, fabric: Fabric) -> None:
    page.look_up("c0_0")
    page.drain("c0_0")
    assert page.text("#refusal") == "Type in the operator token first."
    page.give_token("wrong")
    page.drain("c0_0")
    eventually(lambda: page.text("#refusal"), Containing("Unauthorized"))
    assert f"the token is in {fabric.controller.token_file}" in page.text("#refusal")
    assert drained(fabric) == []
    assert page.focused() == "token"
    page.type(Keys.ESCAPE)
    assert not page.one("#notice").is_displayed()
    page.look_up("h0_0_2-e0_0")
    assert "Drain" not in [each.text for each in page.driver.find_elements("css selector", "#chosen button")]
    page.look_up("<b>x</b>")
    assert "There is no <b>x</b> here" in page.text("#find-error")


def test_everything_can_be_done_by_keyboard(page: Page, fabric: Fabric) -> None:
    page.tab_to("c0_0")  # the drawing is one stop
    page.type(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert page.focused() == "a1_0"
    outline = page.run("return getComputedStyle(document.activeElement.querySelector('rect')).strokeWidth")
    assert outline == "4px"
    assert page.run("return document.activeElement.getAttribute('aria-label')") == "aggregation switch a1_0: in use"
    page.type(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.HOME, Keys.ENTER, Keys.END, Keys.ENTER)
    eventually(lambda: page.text("#paths-summary"), Containing("h0_0_2 to h3_1_3"))
    page.tab_to("token")
    page.type(fabric.controller.token_file.read_text().strip(), Keys.ENTER)
    page.look_up("c0_1")
    page.tab_to("Drain c0_1")
    page.type(Keys.ENTER)
    assert page.focused() == ""
    page.type(Keys.ENTER)
    eventually(lambda: page.state("c0_1"), "drained")
    eventually(lambda: page.focused(), "Restore c0_1")
    page.type(Keys.SPACE)
    eventually(lambda: page.state("c0_1"), "ok")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(page: Page, scheme: str) -> None:
    page.scheme(scheme)
    texts = ["--ink", "--soft", "--accent", "--failed", "--drained", "--miswired", "--missing", "--fine", "--gateway"]
    lines = [f"--step-{step}" for step in ("unknown", 0, 1, 2, 3, 4)] + [f"--loss-{step}" for step in range(3)]
    ground, found = page.run(Path(__file__).with_name("contrasts.js").read_text(), texts + lines)
    assert (ground < 0.1) is (scheme == "dark")
    assert {name: ratio for name, ratio in found.items() if ratio < (4.5 if name in texts else 3)} == {}


def test_a_killed_controller_is_said_and_its_return_seen(page: Page, fabric: Fabric) -> None:
    fabric.controller.stop(signal.SIGKILL)
    try:
        eventually(lambda: page.one("#banner").is_displayed())
        assert page.text("#banner").startswith("Connection lost, data from ")
        assert page.text("#connection") == "connection lost"
        assert len(page.names(".links [data-link]", "link")) == 48  # what was known stays
    finally:
        fabric.controller.start()
    eventually(lambda: page.text("#connection"), lambda value: value.startswith("live"))
    assert not page.one("#banner").is_displayed()
    fabric.controller.wait_connected(20)
    eventually(lambda: page.text("#fact-switches"), "20 of 20")
    with cut(fabric, "e0_0", 3):
        eventually(lambda: page.state("e0_0-a0_0"), "failed")
