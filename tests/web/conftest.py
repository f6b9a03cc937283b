"""A real browser, without a window, on the page of a real controller with real switches behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome

from tests.helpers.browser import Page, chromium
from tests.helpers.fabrics import Fabric, running


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """The browser, with a profile of its own."""
    chrome = chromium(tmp_path_factory.mktemp("profile"))
    yield chrome
    chrome.quit()


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """A k=4 fabric; tests leave it as they found it."""
    with running(4, tmp_path_factory.mktemp("fabric"), "--sopa-hold-down=0.2") as its:
        yield its


@pytest.fixture
def page(driver: Chrome, fabric: Fabric) -> Iterator[Page]:
    """The page of that fabric, at a desktop's size."""
    page = Page(driver, fabric.controller.url)
    page.size(1280, 1000)
    page.scheme("light")
    page.open()
    yield page
    driver.get("about:blank")
