"""The page of fabrics that are no fat-trees: leaf-spine, oversubscribed and irregular ones, as an operator sees and uses it."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.helpers.browser import Page
from tests.helpers.waiting import Containing, eventually
from tests.web.conftest import Shown
from tests.web.stub import Stub, Stubbed
from topologies import Clos
from topologies.identity import PREFIX6

HALF = {f"e0_{leaf}-a0_1": 20000 for leaf in range(4)}
RATES = {"host": 10000, "edge": 40000}
SLOW_SPINE = Clos(1, 4, 2, 0, 4, mbit=RATES, links=HALF, gateways=["h0_3_5"], no_label=["h0_0_3"], prefix6=str(PREFIX6))
UNEVEN = {"e1_0-a1_1": "absent", "a2_0-c0_1": "absent", "a0_0-c0_1": 10000}
RISING = {"host": 10000, "edge": 20000, "aggregation": 40000}
IRREGULAR = Clos(3, 2, 2, 4, 3, mbit=RISING, links=UNEVEN, gateways=["h2_0_2", "h2_1_2"], no_label=["h0_0_3"])
RACKS = Clos(pods=1, edges=32, aggregations=4, cores=0, hosts=48)
TOO_LARGE = Clos(pods=1, edges=64, aggregations=8, cores=0, hosts=48, links={"e0_0-a0_0": "absent"})


@pytest.fixture(scope="module")
def slow_spine(shown: Shown) -> Iterator[Page]:
    """A leaf-spine fabric whose second spine has half the rate."""
    with shown(SLOW_SPINE) as page:
        yield page


BOXES = """
const of = (element) => element.getBoundingClientRect();
return [...document.querySelectorAll(".node")].map((node) => {
  const [shape, text] = [of(node.firstElementChild), of(node.lastElementChild)];
  const words = node.lastElementChild.textContent;
  return [node.dataset.node, words, shape.left, shape.right, shape.top, shape.bottom, words ? text.left : null, text.right];
});
"""


def boxes(page: Page) -> dict[str, list[Any]]:
    return {name: rest for name, *rest in page.run(BOXES)}


@pytest.mark.parametrize(
    ("fabric", "width"),
    [
        (SLOW_SPINE, 1280),
        (SLOW_SPINE, 375),
        (IRREGULAR, 1280),
        (RACKS, 1280),
        (RACKS, 375),
        (Clos(pods=1, edges=1, aggregations=1, cores=0, hosts=1), 1280),
        (Clos(pods=1, edges=2, aggregations=40, cores=0, hosts=3), 1280),
        (Clos(pods=20, edges=1, aggregations=2, cores=40, hosts=20), 1280),
        (Clos(pods=1, edges=5, aggregations=3, cores=0, hosts=252), 1280),
    ],
    ids=lambda value: value.title.replace(" ", "-") if isinstance(value, Clos) else str(value),
)
def test_everything_is_drawn_once_and_nothing_over_another(shown: Shown, fabric: Clos, width: int) -> None:
    with shown(fabric, width) as page:
        nodes = [fabric.name(node) for node in (*fabric.switches(), *fabric.hosts())]
        places = boxes(page)
        assert sorted(places) == sorted(nodes)
        assert page.names(".links [data-link]", "link") == [fabric.name(link) for link in fabric.links()]
        eventually(lambda: page.run("return document.documentElement.scrollWidth <= innerWidth"))
        width_of = page.run("return document.querySelector('#fabric svg').getBoundingClientRect()")
        rows: dict[tuple[float, str], list[list[Any]]] = {}
        for name, place in places.items():
            words, left, right, top, bottom, text_left, text_right = place
            assert width_of["left"] <= left
            assert right <= width_of["right"]
            assert bottom <= width_of["bottom"]
            if not name.startswith("h") and words:
                assert left < text_left
                assert text_right < right
            rows.setdefault((round(top + bottom), name[0]), []).append(place)
        for row in rows.values():
            row.sort(key=lambda place: place[1])
            assert all(left[2] <= right[1] + 0.3 for left, right in pairwise(row))
        # a switch is above those that it is cabled to
        for link in fabric.links():
            lower, upper = places[fabric.name(link.lower)], places[fabric.name(link.upper)]
            assert upper[4] < lower[3]


def test_names_of_32_leaves_and_1536_hosts_are_legible(shown: Shown) -> None:
    with shown(RACKS) as page:
        assert page.text("#size") == "leaf-spine: 4 spines, 32 leaves \u00d7 48 hosts"
        assert page.text("#fact-agents") == "0 of 1536"
        places = boxes(page)
        switches = [RACKS.name(switch) for switch in RACKS.switches()]
        assert [places[name][0] for name in switches] == switches
        host = places["h0_20_49"]
        assert host[2] - host[1] >= 4
        # the links of a rack's many hosts are faint, until they matter
        faint = "return getComputedStyle(document.querySelector(`[data-link='${arguments[0]}']`)).opacity"
        assert page.run(faint, "h0_0_2-e0_0") == "0.35"
        assert "4 candidate paths of 4" in page.show_paths("h0_0_2", "h0_20_49")
        assert page.run(faint, "h0_0_2-e0_0") == "1"
        assert len(page.driver.find_elements("css selector", "#host-names option")) == 1536


def test_a_leaf_spine_fabric_that_is_too_large_has_a_card_for_each_switch(shown: Shown) -> None:
    with shown(TOO_LARGE) as page:
        titles = page.text(".pods-title").split("\n")
        assert titles == ["Aggregation switches (spines)", "Edge switches (leaves)"]
        assert page.names(".pod-card", "key") == [f"a0_{j}" for j in range(8)] + [f"e0_{i}" for i in range(64)]
        assert page.text(".pod-card[data-key=a0_3]") == "a0_3in usebusiest 49 %"
        page.one(".pod-card[data-key=e0_0] button").click()
        assert page.text("#chosen p") == "In use; rack 10.0.0.0/24; 1 link absent: e0_0-a0_0"
        assert "7 candidate paths of 7" in page.show_paths("h0_0_2", "h0_63_2")


def test_slower_links_have_narrower_bands_and_words(slow_spine: Page) -> None:
    page = slow_spine
    width = "return parseFloat(getComputedStyle(document.querySelector(`[data-band='${arguments[0]}']`)).strokeWidth)"
    assert page.run(width, "e0_2-a0_0") > 1.5 * page.run(width, "e0_2-a0_1") > 0
    assert page.text(".legend [aria-label='Links by rate'] li") == "full rate\n50 % of it"
    assert page.look_up("e0_2-a0_0") == "In use; 40 Gbit/s"
    page.look_up("e0_2")  # lists its links, where the rate is said once
    said = ["e0_2-a0_1", "in use; 20 Gbit/s", "95 %", "", "19 Gbit/s"]
    assert page.text(".links-list tbody tr:nth-child(6) td").split("\n")[:5] == said
    assert page.look_up("e0_2-a0_1") == "In use; 20 Gbit/s, 50 % of the fastest of its level"


def test_gateways_and_hosts_that_may_not_choose_are_marked(slow_spine: Page) -> None:
    page = slow_spine
    assert page.names(".node.gateway", "node") == ["h0_3_5"]
    assert page.names(".node.no-label", "node") == ["h0_0_3"]
    hosts = page.text(".legend [aria-label=Hosts] li")
    assert hosts == "host with an agent\nwithout\ngateway\nmay not choose paths"
    ends = "10.0.3.5 and fd53:4f50:4100:3::5, gateways 10.0.3.1 and fd53:4f50:4100:3::1"
    assert page.look_up("h0_3_5") == f"{ends}. It leads out of the fabric."
    assert "It may not choose paths" in page.look_up("h0_0_3")
    label = "return document.querySelector(`[data-node='${arguments[0]}']`).getAttribute('aria-label')"
    assert page.run(label, "h0_3_5") == "gateway h0_3_5, 10.0.3.5, fd53:4f50:4100:3::5, without an agent"
    assert page.run(label, "h0_0_3") == "host h0_0_3, 10.0.0.3, fd53:4f50:4100::3, without an agent, may not choose paths"
    assert page.run(label, "a0_1") == "aggregation switch (spine) a0_1: in use"
    assert "h0_0_3 may not choose paths" in page.show_paths("h0_0_3", "h0_2_2")
    page.one("#source").clear()
    page.one("#source").send_keys("fd53:4f50:4100:1::2")
    page.enter("#destination", "FD53:4F50:4100:2:0:0:0:3")
    eventually(lambda: page.text("#paths-summary"), Containing("h0_1_2 to h0_2_3"))


def test_weights_are_in_the_list_and_in_the_width_of_lines(slow_spine: Page) -> None:
    page = slow_spine
    page.show_paths("h0_0_2", "h0_2_2")
    assert page.text(".path b").split("\n") == ["67 %", "33 %"]
    script = "return Object.fromEntries([...document.querySelectorAll('.halo')].map(" + (
        "each => [each.dataset.key, parseFloat(getComputedStyle(each).strokeWidth)]))"
    )
    halos = page.run(script)
    assert halos["e0_0-a0_0"] == halos["h0_0_2-e0_0"] > 1.5 * halos["e0_0-a0_1"]
    page.driver.find_elements("css selector", ".path")[1].click()
    slow = "slowest link e0_0-a0_1: 20 Gbit/s; busiest link e0_0-a0_1: 95 %"
    assert page.text(".path small").strip() == f"33 % of a flow\u2019s packets; {slow}"
    page.driver.find_elements("css selector", ".path")[1].click()
    assert page.text(".path small").strip() == ""


def candidates(its: Stubbed, src: str, dst: str) -> list[str]:
    """The candidate paths in the page's words, by REST."""
    paths = httpx.get(f"{its.url}/sopa/v1/paths", params={"src": src, "dst": dst}).json()["candidates"]
    return [" → ".join([*path["hops"], *([path["gateway"]] if "gateway" in path else [])]) for path in paths]


def test_paths_to_an_address_outside_end_at_gateways(shown: Shown, stub: Stub, tmp_path: Path) -> None:
    fabric = Clos(1, 4, 2, 0, 4, gateways=["h0_3_4", "h0_3_5"], prefix6=str(PREFIX6))
    its = stub.serve(fabric, tmp_path)  # whose paths have the same uplinks
    with shown(its) as page:
        for left, excluded, outside in ((4, 0, "192.0.2.1"), (2, 2, "2001:db8::1")):
            page.show_paths("h0_0_2", outside)
            eventually(lambda left=left: page.text("#paths-summary"), Containing(f"outside: {left} candidate paths of 4"))
            words = candidates(its, "h0_0_2", outside)
            assert {each.rpartition(" → ")[2] for each in words} == {"h0_3_4", "h0_3_5"}
            eventually(lambda: page.text("[aria-label='Candidate paths'] .path span").split("\n"), words)
            assert len(page.names("[aria-label='Excluded paths'] li", "key")) == excluded
            uplinks = {f"{edge}-a0_{spine}" for edge in ("e0_0", "e0_3") for spine in range(excluded // 2, 2)}
            assert set(page.names(".halo.candidate", "key")) >= {"h0_0_2-e0_0", *uplinks}
            its.ask("cut", "e0_0-a0_0")


def test_an_irregular_fabric_is_used_as_any_other(shown: Shown, stub: Stub, tmp_path: Path) -> None:
    its = stub.serve(IRREGULAR, tmp_path)
    with shown(its) as page:
        its.ask("cut", "e0_0-a0_0")
        eventually(lambda: page.state("e0_0-a0_0"), "failed")
        for absent in sorted(IRREGULAR.name(each) for each in IRREGULAR.absent):
            page.look_up(absent)
            assert page.text("#find-error") == f"{absent} is absent: the fabric has no cable there."
            assert f"1 link absent: {absent}" in page.look_up(absent.split("-")[0])
        ends = "h0_0_2", IRREGULAR.name(list(IRREGULAR.hosts())[-1])
        told = candidates(its, *ends)
        assert f"{len(told)} candidate path" in page.show_paths(*ends)
        eventually(lambda: page.text("[aria-label='Candidate paths'] .path span").split("\n"), told)


@pytest.mark.parametrize(("k", "selector", "count"), [(16, ".links line", 3072), (24, ".pod-card", 24)])
def test_large_fabrics_are_shown_too(shown: Shown, k: int, selector: str, count: int) -> None:
    with shown(k) as page:
        assert len(page.driver.find_elements("css selector", selector)) == count
        folded = k == 16  # cards of pods are as short as a table
        assert page.run("return document.querySelector('main').firstElementChild.id === 'tables'") is folded
        assert page.one("#fabric").is_displayed() is not folded
        if folded:
            assert page.names("#table-body tr", "key")[0] == "e0_0-a0_7"  # the busiest
            page.one("#drawing summary").click()
            assert page.one("#fabric svg").is_displayed()
        page.one("#source").send_keys("h0_0_2")
        page.enter("#destination", f"10.{k - 1}.0.3")
        eventually(lambda: page.text("#paths-summary"), Containing(f"h0_0_2 to h{k - 1}_0_3"))
        assert len(page.names(".paths-list li", "key")) == k * k / 4
        for width in (375, 320):
            page.size(width, 800)
            eventually(lambda width=width: page.run("return innerWidth"), width)
            eventually(lambda: page.run("return document.documentElement.scrollWidth <= innerWidth"))
