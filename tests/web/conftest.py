"""A real browser, without a window: pages of a controller with real switches, and of fabrics that are only states."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from tests.helpers.browser import Page, chromium
from tests.helpers.fabrics import Fabric, running
from tests.web.stub import Stub, Stubbed
from topologies import Clos

Shown = Callable[..., AbstractContextManager[Page]]


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    chrome = chromium(tmp_path_factory.mktemp("profile"))
    yield chrome
    chrome.quit()


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stub]:
    with Stub(tmp_path_factory.mktemp("stub")) as its:
        yield its


@pytest.fixture
def stubbed(stub: Stub, tmp_path: Path) -> Stubbed:
    """A k=4 fabric of the test's own that is only a state."""
    return stub.serve(4, tmp_path)


@pytest.fixture(scope="session")
def shown(driver: Chrome, stub: Stub, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Return a context manager: the page of a fabric that is only a state; the console has to stay empty."""

    @contextmanager
    def its_page(fabric: Clos | int | Stubbed, width: int = 1280) -> Iterator[Page]:
        its = fabric if isinstance(fabric, Stubbed) else stub.serve(fabric, tmp_path_factory.mktemp("tokens"))
        page = Page(driver, its.url)
        page.desktop(width)
        yield page
        page.leave()

    return its_page


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    """A k=4 fabric; tests leave it as they found it."""
    # its cables carry no LLDP, which would be said after some time
    with running(4, tmp_path_factory.mktemp("fabric"), "--sopa-hold-down=0.2", "--sopa-lldp-interval=3600") as its:
        yield its


@pytest.fixture
def page(driver: Chrome, fabric: Fabric) -> Iterator[Page]:
    page = Page(driver, fabric.controller.url)
    page.desktop()
    yield page
    driver.get("about:blank")
