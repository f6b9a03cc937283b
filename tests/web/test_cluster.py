"""The page of a member of a cluster that stands by: it says who leads, and where drains are made."""

from __future__ import annotations

from pathlib import Path

from selenium.webdriver import Chrome

from sopa_ryu.web import live_feed
from tests.helpers.browser import Page
from tests.helpers.waiting import eventually
from tests.web.test_feed import serving
from tests.web.test_page import give_token, look_up, press


def test_a_standbys_page_names_the_leader_and_its_page(driver: Chrome, tmp_path: Path) -> None:
    with serving(4, tmp_path, live_feed.MAX_CLIENTS, "c2") as where:
        page = Page(driver, f"http://{where}")
        page.open()
        eventually(lambda: page.text("#fact-cluster"), "c2 leads, this one stands by; term 1790000000000")
        assert page.one("#in-cluster").is_displayed()
        give_token(page, (tmp_path / "token").read_text().strip())
        look_up(page, "a1_1-c1_0")
        press(page, "Drain a1_1-c1_0")
        said = "Another controller leads the cluster: drain and restore on its page, http://192.0.2.2:8080."
        eventually(lambda: page.text("#refusal"), said)
        assert page.state("a1_1-c1_0") != "drained"
        driver.get("about:blank")
