"""The live page in a real browser."""

from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.helpers.waiting import Containing, eventually

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")  # Debian's, by scripts/install.sh
# without its sandbox it starts as root; all that it opens is our own page
OFF = ("gpu", "quic", "background-networking", "component-update", "sync")
ARGUMENTS = ("--headless=new", "--no-sandbox", "--no-first-run", *(f"--disable-{name}" for name in OFF))


def chromium(profile: Path) -> Chrome:
    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    missing = [str(file) for file in (CHROMIUM, DRIVER) if not file.exists()]
    assert not missing, f"{' and '.join(missing)} not found: run `make install`"
    return Chrome(options=options, service=Service(str(DRIVER)))


class Page:
    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver, self.url = driver, url

    def open(self) -> None:
        """Load it without stored data, and wait until the fabric is drawn."""
        self.driver.get(self.url)
        self.run("sessionStorage.clear()")
        self.driver.get_log("browser")
        self.driver.get(self.url)
        eventually(lambda: self.run("return performance.getEntriesByName('drawn').length"), 1)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)  # type: ignore[no-untyped-call]

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        """Return the texts of a selector's elements as in the document, one per line."""
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent).join('\\n')"
        return str(self.run(script, selector))

    def names(self, selector: str, key: str) -> list[str]:
        """Return a data attribute of each of a selector's elements."""
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.dataset[arguments[1]])"
        return list(self.run(script, selector, key))

    def state(self, name: str) -> str:
        """Return the state in which the drawing shows a switch or link."""
        found = f'.links [data-link="{name}"], .nodes [data-node="{name}"]'
        return str(self.run("return document.querySelector(arguments[0]).dataset.state", found))

    def type(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def focused(self) -> str:
        """Return the focused element: its id, or the name of the drawing's node, or its text."""
        script = "const e = document.activeElement; return e.id || e.dataset.node || e.textContent"
        return str(self.run(script))

    def tab_to(self, what: str, most: int = 80) -> None:
        for _ in range(most):
            if self.focused() == what:
                return
            self.type(Keys.TAB)
        raise AssertionError(f"Tab does not lead to {what}")

    def size(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def scheme(self, scheme: str) -> None:
        features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", features)

    def desktop(self, width: int = 1280) -> None:
        self.size(width, 1000)
        self.scheme("light")
        self.open()

    def enter(self, selector: str, text: str) -> None:
        """Replace the text of a field, and press Enter."""
        self.one(selector).clear()
        self.one(selector).send_keys(text, Keys.ENTER)

    def look_up(self, name: str) -> str:
        """Look up a switch, host or link; return the first paragraph about it."""
        self.enter("#name", name)
        return self.text("#chosen p")

    def show_paths(self, source: str, destination: str) -> str:
        """Ask for the paths between two hosts; return the summary once it is about them."""
        self.one("#source").clear()
        self.one("#source").send_keys(source)
        self.enter("#destination", destination)
        return str(eventually(lambda: self.text("#paths-summary"), Containing(f"{source} to {destination}")))

    def give_token(self, token: str) -> None:
        self.one("#token").send_keys(token)
        self.one("#operator [type=submit]").click()

    def press(self, text: str) -> None:
        """Press a button of what is looked up."""
        [button] = [each for each in self.driver.find_elements("css selector", "#chosen button") if each.text == text]
        button.click()

    def drain(self, name: str, reason: str = "") -> None:
        """Drain what is looked up, by its button and the second one that this asks for."""
        self.press(f"Drain {name}")
        self.one("#confirm input").send_keys(reason)
        self.press(f"Yes, drain {name}")

    def leave(self) -> None:
        """Check that the console has no messages, and open an empty page."""
        assert self.errors() == []
        self.driver.get("about:blank")

    def errors(self) -> list[str]:
        """Return the console's messages since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]
