"""Pictures for docs/: as root, ``make pictures ARGS='NAME ...'``, all by default. Look at them before you commit them.

``demo`` is what `sopa demo --k 4` says, each other one the page of a lab with controller, agents and traffic.
"""

import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.text import Text
from selenium.webdriver.common.keys import Keys

from experiments.emulation.bad_links import BadLinks
from experiments.emulation.sopa_lab import SopaLab
from experiments.emulation.traffic.udp_stream import UdpStream
from tests.helpers.browser import Page, chromium
from tests.helpers.waiting import Containing, eventually
from topologies import Clos, FatTree
from topologies.lab.faults import set_silent
from topologies.lab.isolation import isolated
from topologies.lab.network import default_rate

DOCS = Path(__file__).parents[2] / "docs"
WIDTH, HEIGHT = 1280, 960
COLUMNS = 110  # of a terminal
PATIENCE = 120.0
LOADS = (0.9, 0.6, 0.4, 0.2)  # rates of the streams between pods, as shares of the rate of a link
PAYLOAD = 1200
HALF = {f"e0_{leaf}-a0_1": 10000 for leaf in range(4)}
RATES = {"host": 10000, "edge": 20000}
SLOW_SPINE = Clos(1, 4, 2, 0, 4, mbit=RATES, links=HALF, gateways=["h0_3_5"], no_label=["h0_0_3"])
DARK = {"failed"}  # what is shown in both schemes
STEPS = 4  # different loads of links that a picture shows


@contextmanager
def traffic(lab: SopaLab, rate_mbit: float) -> Iterator[None]:
    """Send streams of several rates from a host of each pod, or rack of a single pod, to the next one."""
    hosts = list(lab.tree.hosts())
    pod = len(hosts) // (lab.tree.pods if lab.tree.pods > 1 else lab.tree.edges)
    with ExitStack() as stack:
        for number, load in enumerate(LOADS):
            src, dst = hosts[number * pod], hosts[(number + 1) * pod % len(hosts) + 1]
            per_second = max(1, round(load * rate_mbit * 1e6 / 8 / PAYLOAD))
            stack.enter_context(UdpStream(lab.lab, src, dst, per_second, PAYLOAD))
        yield


def failures(lab: SopaLab) -> set[str]:
    return {failure["name"] for failure in lab.controller.fabric()["failures"]}


def healthy(lab: SopaLab, page: Page) -> None:
    page.open()
    eventually(lambda: page.run("return document.getElementById('healthy').hidden"), False, seconds=PATIENCE)
    eventually(lambda: {"-1", "0"} & {*page.names(".links [data-link^='a0_']", "step")}, set(), seconds=PATIENCE)


def failed(lab: SopaLab, page: Page) -> None:
    lab.lab.set_link("a0_0-c0_0", up=False)
    set_silent(lab.lab, "e2_0-a2_1", "a2_1", True)
    eventually(lambda: failures(lab), {"a0_0-c0_0", "e2_0-a2_1"}, seconds=PATIENCE)
    page.open()
    page.one("#source").send_keys("h0_0_2")
    page.one("#destination").send_keys("h2_0_3", Keys.ENTER)
    eventually(lambda: page.text("#paths-summary"), Containing("1 candidate path of 4"))


def drained(lab: SopaLab, page: Page) -> None:
    lab.controller.change("PUT", "/drains/a3_0-c0_1")
    page.open()
    page.one("#token").send_keys(lab.controller.token_file.read_text().strip())
    page.one("#operator [type=submit]").click()
    page.one("#name").send_keys("c1_0", Keys.ENTER)
    eventually(lambda: page.text("#chosen button"), Containing("Drain c1_0"))
    page.drain("c1_0", "fan, ticket 4711")
    eventually(lambda: page.text("#outcome"), "c1_0 is drained.")
    eventually(lambda: page.state("c1_0"), "drained")
    eventually(lambda: page.text("#fact-agents"), f"{lab.tree.host_count} of {lab.tree.host_count}")
    eventually(lambda: set(page.names(".links [data-link$='c1_0']", "step")), {"0"}, seconds=PATIENCE)


def uneven(lab: SopaLab, page: Page) -> None:
    page.open()
    page.one("#source").send_keys("h0_0_2")
    page.one("#destination").send_keys("h0_2_3", Keys.ENTER)
    eventually(lambda: page.text("#paths-summary"), Containing("2 candidate paths of 2"))
    page.one("#name").send_keys("a0_1", Keys.ENTER)
    agents = len(lab.labelling)
    eventually(lambda: page.text("#fact-agents"), f"{agents} of {lab.tree.host_count}", seconds=PATIENCE)


def lossy(lab: SopaLab, page: Page) -> None:
    link = "a2_0-c0_1"
    page.size(WIDTH, 860)
    page.open()
    eventually(lambda: failures(lab), set(), seconds=PATIENCE)
    with BadLinks(lab.lab) as bad:
        bad.set_loss(link, "a2_0", 0.15, seed=7)
        bad.set_rate("e1_0-a1_1", "a1_1", 0.25)
        page.one("#colouring input[value=loss]").click()
        page.one("#name").send_keys(link, Keys.ENTER)
        eventually(lambda: page.names('.links [data-loss="2"]', "link"), [link], seconds=PATIENCE)
        eventually(lambda: page.text("#problem-lists h3"), "Losing packets (1)", seconds=PATIENCE)


PICTURES: dict[str, tuple[Clos, Callable[[SopaLab, Page], None]]] = {
    "healthy": (FatTree(8), healthy),
    "failed": (FatTree(4), failed),
    "drained": (FatTree(4), drained),
    "uneven": (SLOW_SPINE, uneven),
    "lossy": (FatTree(4), lossy),
}


def take(name: str) -> int:
    tree, prepare = PICTURES[name]
    rate = default_rate(tree)
    with ExitStack() as stack:
        profile = stack.enter_context(tempfile.TemporaryDirectory())
        lab = stack.enter_context(SopaLab(tree, rate, say=print))
        driver = chromium(Path(profile))
        stack.callback(driver.quit)
        stack.enter_context(traffic(lab, rate))
        page = Page(driver, lab.url)
        page.size(WIDTH, HEIGHT)
        page.scheme("light")
        prepare(lab, page)
        eventually(lambda: len(set(page.names(".links [data-link]", "step"))), lambda steps: steps >= STEPS, seconds=PATIENCE)
        for scheme, ending in (("light", ""), *([("dark", "-dark")] if name in DARK else [])):
            page.scheme(scheme)
            screenshot = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
            # a third of the size; unlike the usual palette it keeps the colours of thin lines
            small = screenshot.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
            small.save(DOCS / f"page-{name}{ending}.png", optimize=True)
    return 0


def demo() -> int:
    command = [str(Path(sys.executable).with_name("sopa")), "demo", "--k", "4"]
    said = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    terminal = Console(record=True, file=io.StringIO(), width=COLUMNS, color_system=None)
    terminal.print(Text.from_ansi(said), end="")
    picture = terminal.export_svg(title="make demo", unique_id="demo")
    (DOCS / "demo.svg").write_text(re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL))  # nothing is fetched
    return 0


def make(name: str) -> int:
    return demo() if name == "demo" else isolated(lambda: take(name))


if __name__ == "__main__":
    sys.exit(any(make(name) for name in sys.argv[1:] or ["demo", *PICTURES]))
