"""What probes say of links, on the page: colours by loss and by delay, and the last hour of the selected link.

The switches, the controller and its estimator are real; hosts report as they would if links lost probes and held them up.
"""

from __future__ import annotations

from selenium.webdriver.common.keys import Keys

from tests.helpers.browser import Page
from tests.helpers.fabrics import Fabric
from tests.helpers.waiting import Containing, eventually
from tests.switch.test_health import hosts

LOSSY, SLOW, OTHER = "a2_0-c0_1", "e1_0-a1_1", "a0_0-c0_0"


def choose(page: Page, colouring: str) -> None:
    page.one(f"#colouring input[value={colouring}]").click()


def colour(page: Page, link: str) -> str:
    found = f'.links [data-link="{link}"]'
    return str(page.run("return getComputedStyle(document.querySelector(arguments[0])).stroke", found))


def show(page: Page, name: str) -> None:
    page.one("#name").clear()
    page.one("#name").send_keys(name, Keys.ENTER)


def heights(page: Page, curve: str) -> list[float]:
    """How far up a plot a curve reaches, in shares of its height."""
    script = """
      const curve = document.querySelector(`.history .curves ${arguments[0]}`);
      const axis = document.querySelectorAll(`.plot:has(.curves ${arguments[0]}) .axes path`);
      const [low, high] = [axis[0].getBBox().y, axis[2].getBBox().y];
      const numbers = [...curve.getAttribute("d").matchAll(/[ML][0-9.]+ ([0-9.]+)/g)];
      return numbers.map((found) => (low - Number(found[1])) / (low - high));
    """
    return [float(value) for value in page.run(script, curve)]


def test_links_are_coloured_by_loss_and_delay_and_the_selected_one_shows_its_hour(page: Page, fabric: Fabric) -> None:
    show(page, LOSSY)
    eventually(lambda: page.text(".history .hint"), "No probe has crossed this link in the last hour.")
    with hosts(fabric) as its:
        its.losing, its.slow = {"c0_1-a2_0": 0.2}, {SLOW: 2000}
        lossy, slow = ([f'.links [data-{what}="{step}"]' for step in (1, 2)] for what in ("loss", "delay"))
        eventually(lambda: page.names(", ".join(lossy), "link"), [LOSSY], seconds=120)
        eventually(lambda: page.names(", ".join(slow), "link"), [SLOW], seconds=120)
        by_load = {name: colour(page, name) for name in (LOSSY, SLOW, OTHER)}
        assert by_load[LOSSY] not in (by_load[SLOW], by_load[OTHER])
        choose(page, "loss")
        assert colour(page, LOSSY) == by_load[LOSSY]
        assert colour(page, SLOW) == colour(page, OTHER)
        assert "% lost or more" in page.text("#legend")
        choose(page, "delay")
        assert colour(page, LOSSY) == colour(page, OTHER)
        assert colour(page, SLOW) != colour(page, OTHER)
        assert "times the median or more" in page.text("#legend")

        show(page, OTHER)
        show(page, LOSSY)  # asks at once
        eventually(lambda: page.text(".history .hint"), Containing("99th percentile"))
        told = fabric.controller.get(f"/health/{LOSSY}").json()["points"]
        assert sum(point["sent"] for point in told) > 0
        assert max(point["loss"]["down"] or 0.0 for point in told) > 0.1
        eventually(lambda: max(heights(page, ".down")), lambda height: height > 0.4)
        assert max(heights(page, ".up")) < 0.1
        label = page.one(".history .plot.loss").get_attribute("aria-label")
        assert label is not None
        assert label.startswith(f"Lost probes of {LOSSY}: at most ")
    show(page, "c0_1")
    assert not page.one(".history").is_displayed()
    show(page, "h0_0_2-e0_0")
    assert not page.one(".history").is_displayed()
    assert page.errors() == []
