"""A real browser, without a window, on the page of a real controller with real switches behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

from tests.helpers.browser import Page
from tests.helpers.fabrics import Fabric, running

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")  # Debian's, by scripts/install.sh
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # it does not start as root otherwise; all that it opens is our own page
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """The browser, with a profile of its own."""
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    missing = [str(file) for file in (CHROMIUM, DRIVER) if not file.exists()]
    assert not missing, f"{' and '.join(missing)} not found: run `make install`"
    chrome = Chrome(options=options, service=Service(str(DRIVER)))
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
