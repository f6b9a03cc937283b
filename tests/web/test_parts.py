"""What the page shows only in a cluster, with an arbiter or with probes, of fabrics that are only states."""

from pathlib import Path

from selenium.webdriver import Chrome

from sopa_ryu.channel.messages import REPORTED
from tests.helpers.browser import Page
from tests.helpers.waiting import Containing, eventually
from tests.web.conftest import Shown
from tests.web.stub import Stub, Stubbed
from topologies import Aliases, FatTree

LOSSY, SLOW, OTHER = "a2_0-c0_1", "e1_0-a1_1", "a0_0-c0_0"


def test_a_standbys_page_names_the_leader_and_its_page(shown: Shown, stub: Stub, tmp_path: Path) -> None:
    standby = stub.serve(4, tmp_path, leader="c2")
    with shown(standby) as page:
        eventually(lambda: page.text("#fact-cluster"), "c2 leads, this one stands by; term 1790000000000")
        assert page.one("#in-cluster").is_displayed()
        assert page.text("#status") == "✓ Well"
        page.give_token(standby.token)
        page.look_up("a1_1-c1_0")
        page.drain("a1_1-c1_0")
        said = "Another controller leads the cluster: drain and restore on its page, http://192.0.2.2:8080."
        eventually(lambda: page.text("#refusal"), said)
        assert page.state("a1_1-c1_0") != "drained"
        page.errors()  # the browser itself notes the rejected request


def test_a_controller_that_answers_by_a_token_only_is_read_once_it_is_stored(driver: Chrome, stub: Stub, tmp_path: Path) -> None:
    its = stub.serve(4, tmp_path, read_token=True)
    page = Page(driver, its.url)
    driver.get(its.url)
    eventually(lambda: page.text("#banner"), Containing("answers only with a token: store it below"))
    page.give_token(its.token)
    eventually(lambda: page.text("#fact-switches"), "20 of 20")
    page.errors()
    page.look_up("a1_1-c1_0")
    page.drain("a1_1-c1_0")
    eventually(lambda: page.text("#outcome"), "a1_1-c1_0 is drained.")
    assert page.show_paths("h0_0_2", "h1_0_2")
    page.run("document.querySelector('footer a').click()")
    eventually(lambda: driver.page_source, Containing('"openapi"'))
    assert page.errors() == []
    driver.get("about:blank")


def test_what_is_not_well_is_counted_in_the_status_bar_and_in_the_tabs_title(shown: Shown, stubbed: Stubbed) -> None:
    steps = {
        "": ("", "✓ Well", ""),
        "drain": ("c1_0", "! Notice 1: 1 drained", "(1) "),
        "cut": (OTHER, "\u00d7 Trouble 2: 1 failed, 1 drained", "(2) "),
    }
    colours = set()
    with shown(stubbed) as page:
        for what, (name, said, count) in steps.items():
            if what:
                stubbed.ask(what, name)
            eventually(lambda: page.text("#status"), said)
            assert page.driver.title == f"{count}SOPA k=4"
            colours.add(page.run("return getComputedStyle(document.getElementById('status')).backgroundColor"))
        assert len(colours) == len(steps)


def test_an_address_names_what_is_selected(shown: Shown, stubbed: Stubbed) -> None:
    with shown(stubbed) as page:
        for change in (f"location.hash = '{OTHER}'", "location.reload()"):
            page.run(change)
            eventually(lambda: page.text("#chosen h3"), f"Link {OTHER}")
            assert page.names(".links .selected", "link") == [OTHER]
        page.look_up("c1_0")
        assert page.run("return location.hash") == "#c1_0"
        for others in ("problems", "c9_9"):
            page.run("location.hash = arguments[0]", others)
            eventually(lambda others=others: page.text("#find-error").startswith(f"There is no {others} here"), others == "c9_9")
            assert page.text("#chosen h3") == "Core switch c1_0"


def test_links_that_have_a_switch_in_common_are_told_as_that_switch(shown: Shown, stubbed: Stubbed) -> None:
    with shown(stubbed) as page:
        for pod in range(4):
            stubbed.ask("cut", f"a{pod}_0-c0_1")
        stubbed.ask("cut", OTHER)
        eventually(lambda: page.text("#problem-lists h3"), "Failed (5)")
        assert page.names("#problem-lists li", "key") == ["c0_1", OTHER]
        its = "all its links have failed: a0_0-c0_1 down, a1_0-c0_1 down, a2_0-c0_1 down, a3_0-c0_1 down; since "
        assert page.text("#problem-lists li span").startswith(its)
        assert page.text("#problem-lists .hint") == ""


COLUMN = "return [...document.querySelectorAll('#table-body tr')].map(e => e.cells[arguments[0]].textContent)"


def test_tables_are_sorted_by_a_column_and_filtered(shown: Shown, stubbed: Stubbed) -> None:
    with shown(stubbed) as page:
        assert page.text("#table-count") == "48 rows of 48"
        assert page.names("#table-body tr", "key")[:2] == ["h0_0_2-e0_0", "h0_0_3-e0_0"]
        use = page.one("#table-head th:nth-child(3) button")
        for order, said in (("descending", ["95 %"] * 16 + ["45 %"] * 16), ("ascending", ["45 %"] * 16 + ["95 %"] * 16)):
            use.click()
            assert page.run(COLUMN, 2) == said + [""] * 16  # what is not known is last
            assert page.one("#table-head th:nth-child(3)").get_attribute("aria-sort") == order
        page.one("#table-filter").send_keys("A2_0-C")
        assert page.names("#table-body tr", "key") == ["a2_0-c0_0", LOSSY]
        page.one("#table-filter").clear()
        stubbed.ask("links_measured", {LOSSY: 0.2}, {})
        stubbed.ask("cut", OTHER)
        page.one("#table-wrong").click()
        eventually(lambda: page.names("#table-body tr", "key"), [OTHER, LOSSY])
        assert page.run(COLUMN, 1) == ["down", "in use"]
        page.one("#table-body [data-key=a2_0-c0_1] button").click()
        assert page.text("#chosen h3") == f"Link {LOSSY}"
        for what, wrong in (("switches", ["c0_0", "a0_0"]), ("agents", [])):  # no agent has connected: hosts need none
            page.one(f"#table-kinds [value={what}]").click()
            assert page.names("#table-body tr", "key") == wrong
        assert page.text("#table-count") == "0 rows of 16"


def test_what_hosts_send_and_what_has_failed_is_drawn_as_it_changes(shown: Shown, stubbed: Stubbed) -> None:
    with shown(stubbed) as page:
        assert not page.one("#has-sent").is_displayed()
        for rate, sent in ((2e6, "32 Mbit/s"), (1e6, "16 Mbit/s")):
            stubbed.ask("send", rate)
            eventually(lambda: page.text("#fact-sent"), sent)
        stubbed.ask("cut", OTHER)
        eventually(lambda: page.text("#fact-failed"), "1")
        assert page.text("#trend-sent title").startswith("at most 32 Mbit/s since ")
        steps = "return document.querySelector(`#trend-${arguments[0]} path`).getAttribute('d')"
        assert page.run(steps, "failed").endswith("V1.0h0.1")
        assert page.run(steps, "sent").endswith("V10.0h0.1")


def facts(page: Page) -> dict[str, str]:
    terms = page.run("return [...document.querySelectorAll('#arbiter-facts dt')].map(each => each.textContent)")
    return {term: page.text(f"#arbiter-facts > div:nth-child({n}) dd") for n, term in enumerate(terms, 1)}


def test_the_page_shows_the_arbiter_and_that_it_is_gone(shown: Shown, stubbed: Stubbed) -> None:
    report = {
        "listen": "192.0.2.5:9160", "slot_ms": 3.2, "lease_ms": 103,
        "participants": 1, "load": 0.25, "batches": 9, "late_batches": 1, "granted_cells": 20_000, "unplaced_cells": 2,
        "rejected_datagrams": 3,
    }  # fmt: skip
    assert report.keys() == REPORTED.keys()
    with shown(stubbed) as page:
        assert not page.one("#arbiter").is_displayed()
        assert not page.one("#has-arbiter").is_displayed()
        stubbed.ask("arbiter_reports", report)
        eventually(lambda: page.one("#arbiter").is_displayed())
        assert page.text("#fact-arbiter") == "1 of 16 hosts take part, load 25 %"
        assert page.text("#arbiter-gone") == ""
        its = facts(page)
        assert its.pop("Term").isdigit()
        assert its == {
            "Arbiter": "192.0.2.5:9160, connected from 192.0.2.5",
            "Hosts that take part": "1 of 16",
            "Load": "25 % of hosts' slots in use",
            "Slot; lease": "3.2 ms; 103 ms",
            "Granted": "20000 slots in 9 batches",
            "Late": "1 batch",
            "Without a path": "2 slots",
            "Rejected": "3 datagrams",
        }
        stubbed.ask("arbiter_goes")
        eventually(lambda: page.text("#fact-arbiter"), "gone")
        assert page.text("#arbiter-gone") == (
            "The arbiter is gone, it was at 192.0.2.5: hosts of policy cfr send without slots once their leases end. "
            "Start it again: sopa arbiter"
        )
        eventually(lambda: facts(page)["Arbiter"], Containing("gone"))


def colour(page: Page, link: str) -> str:
    found = f'.links [data-link="{link}"]'
    return str(page.run("return getComputedStyle(document.querySelector(arguments[0])).stroke", found))


def test_links_are_coloured_by_loss_and_delay(shown: Shown, stubbed: Stubbed) -> None:
    with shown(stubbed) as page:
        stubbed.ask("links_measured", {LOSSY: 0.2}, {SLOW: 2000.0})
        lossy, slow = (", ".join(f'.links [data-{what}="{step}"]' for step in (1, 2)) for what in ("loss", "delay"))
        eventually(lambda: page.names(lossy, "link"), [LOSSY])
        assert page.names(slow, "link") == [SLOW]
        assert len(page.driver.find_elements("css selector", "#legend > ul > li")) == 7
        colours = {}
        for what, legend in (("loss", "% lost or more"), ("delay", "times the median or more")):
            page.one(f"#colouring input[value={what}]").click()
            assert legend in page.text("#legend")
            assert len(page.driver.find_elements("css selector", "#legend > ul > li")) == 5
            colours[what] = {name: colour(page, name) for name in (LOSSY, SLOW, OTHER)}
        assert colours["loss"][LOSSY] != colours["loss"][SLOW] == colours["loss"][OTHER]
        assert colours["delay"][SLOW] != colours["delay"][LOSSY] == colours["delay"][OTHER]


def test_an_element_is_shown_and_found_by_its_own_name_and_its_alias(shown: Shown, stub: Stub, tmp_path: Path) -> None:
    tree, names = FatTree(4), {"a0_0": "leaf-12", "c0_0": "spine-3", "h0_0_2": "web-1"}
    tree.aliases = Aliases(names, {"a0_0": "B12"}, {"a0_0": {3: "Eth1/3"}})
    its = stub.serve(tree, tmp_path)
    with shown(its) as page:
        its.ask("cut", OTHER)
        eventually(lambda: page.text("#problem-lists li .name"), f"{OTHER} (leaf-12-spine-3)")
        assert page.look_up("leaf-12") == "In use; rack: B12"
        assert page.text("#chosen h3") == "Aggregation switch a0_0 (leaf-12)"
        page.run("location.hash = 'leaf-12-spine-3'")
        eventually(lambda: page.text("#chosen h3"), f"Link {OTHER} (leaf-12-spine-3)")
        page.one("#source").send_keys("web-1")
        page.enter("#destination", "h0_0_3")
        eventually(lambda: page.text("#paths-summary"), Containing("h0_0_2 (web-1) to h0_0_3"))
        page.enter("#table-filter", "spine")
        assert page.run("return document.querySelectorAll('#table-body tr').length") == 4
        its.ask("call", {"c1_0": "spine-9"})
        label = "return document.querySelector('[data-node=c1_0]')?.getAttribute('aria-label')"
        eventually(lambda: page.run(label), "core switch c1_0 (spine-9): in use")
