"""The live page in a real browser."""

from __future__ import annotations

from typing import Any

from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.helpers.waiting import eventually


class Page:
    """The live page in the browser."""

    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    def open(self) -> None:
        """Load it anew, with nothing kept, and wait until the fabric is drawn."""
        self.driver.get(self.url)
        self.run("sessionStorage.clear()")
        self.driver.get_log("browser")
        self.driver.get(self.url)
        eventually(lambda: self.run("return performance.getEntriesByName('drawn').length"), 1)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script answers."""
        return self.driver.execute_script(script, *arguments)  # type: ignore[no-untyped-call]

    def one(self, selector: str) -> WebElement:
        """The element of a CSS selector."""
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        """All texts of a selector's elements, as they are in the document, a line each."""
        return str(
            self.run(
                "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent).join('\\n')", selector
            )
        )

    def names(self, selector: str, key: str) -> list[str]:
        """A data attribute of each of a selector's elements."""
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.dataset[arguments[1]])"
        return list(self.run(script, selector, key))

    def state(self, name: str) -> str:
        """How the drawing shows a switch or link."""
        found = f'.links [data-link="{name}"], .nodes [data-node="{name}"]'
        return str(self.run("return document.querySelector(arguments[0]).dataset.state", found))

    def type(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def focused(self) -> str:
        """What has the focus: the id, or the name of the drawing's node, or the text."""
        script = "const e = document.activeElement; return e.id || e.dataset.node || e.textContent"
        return str(self.run(script))

    def tab_to(self, what: str, most: int = 80) -> None:
        """Press Tab until something has the focus."""
        for _ in range(most):
            if self.focused() == what:
                return
            self.type(Keys.TAB)
        raise AssertionError(f"Tab does not lead to {what}")

    def size(self, width: int, height: int) -> None:
        """The viewport's size, in CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def scheme(self, scheme: str) -> None:
        """What the user prefers: light or dark."""
        features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", features)

    def errors(self) -> list[str]:
        """What the console has said since it was asked last."""
        return [entry["message"] for entry in self.driver.get_log("browser")]
