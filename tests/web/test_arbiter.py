"""The arbiter on the page: a real controller, without switches, a real arbiter, and a host that asks it for slots."""

from __future__ import annotations

import signal
from pathlib import Path

from selenium.webdriver import Chrome

from experiments.emulation.processes import ControllerProcess, free_ports
from sopa_ryu.arbiter.build import build
from tests.helpers.arbiter import ArbiterProcess, AskingHost, converse
from tests.helpers.browser import Page
from tests.helpers.waiting import Containing, eventually
from topologies import FatTree

TREE = FatTree(4)


def facts(page: Page) -> dict[str, str]:
    """Return what the page says of the arbiter, by name."""
    terms = page.run("return [...document.querySelectorAll('#arbiter-facts dt')].map(each => each.textContent)")
    return {term: page.text(f"#arbiter-facts > div:nth-child({n}) dd") for n, term in enumerate(terms, 1)}


def test_the_page_shows_the_arbiter_and_that_it_is_gone(driver: Chrome, tmp_path: Path) -> None:
    build()
    openflow, rest = free_ports(2)
    options = ("--sopa-no-switches", "--sopa-link-mbit=40")
    with ControllerProcess(4, tmp_path / "controller.log", openflow, rest, options=options) as controller:
        page = Page(driver, controller.url)
        page.open()
        eventually(lambda: page.text("#fact-version"), "1")
        assert not page.one("#arbiter").is_displayed()
        assert not page.one("#has-arbiter").is_displayed()

        secret = controller.state_dir / "agent-secret"
        given = [f"--secret-file={secret}", "--slot=3.2", "--rate=40"]
        with ArbiterProcess(controller.url, tmp_path / "arbiter.log", given) as arbiter:
            eventually(lambda: page.one("#arbiter").is_displayed())
            eventually(lambda: facts(page).get("Slot; lease"), "3.2 ms; 103 ms")
            assert facts(page)["Arbiter"] == f"127.0.0.1:{arbiter.port}, connected from 127.0.0.1"
            assert facts(page)["Order; paths"] == "min-max-min; colouring"
            host = AskingHost(TREE.ip(TREE.host("h0_0_2")), arbiter.port, secret.read_text().strip())
            host.want(TREE.ip(TREE.host("h2_0_2")), 10**9)

            def asked() -> list[bool]:
                """Tell what the page shows; a host that does not ask for a tenth of a second takes no part any more."""
                converse([host], 0.3)
                its = facts(page)
                return [
                    its["Hosts that take part"] == "1 of 16",
                    its["Load"] != "0 % of hosts' slots in use",
                    not its["Granted"].startswith("0 slots"),
                    page.text("#fact-arbiter").startswith("1 of 16 hosts take part, load "),
                ]

            eventually(asked, [True] * 4, seconds=60)
            assert page.text("#arbiter-gone") == ""
            host.close()
            arbiter.stop(signal.SIGKILL)
            eventually(lambda: page.text("#fact-arbiter"), "gone")
            assert page.text("#arbiter-gone") == (
                "The arbiter is gone, it was at 127.0.0.1: hosts of policy cfr send without slots once their leases end. "
                "Start it again: sopa arbiter"
            )
        eventually(lambda: facts(page)["Arbiter"], Containing("gone"))
        assert page.errors() == []
        driver.get("about:blank")
