"""The page as axe (axe-core 4.14.1, MPL-2.0: the folder `axe`, which only tests have) sees it, on small and large screens."""

from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from tests.helpers.waiting import eventually
from tests.web.conftest import Shown
from tests.web.stub import Stub
from tests.web.test_fabrics import SLOW_SPINE
from topologies import Clos

AXE = (Path(__file__).parent / "axe/axe.min.js").read_text()
# Of the drawing axe says that it cannot tell what is behind a text; test_light_and_dark_are_readable compares its colours.
DEFECTS = """
const [onlyContrast, without, done] = arguments;
const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const run = async () => {
  const rules = { "target-size": { enabled: true }, "color-contrast": { enabled: false } };
  const options = { runOnly: tags, rules, resultTypes: ["violations"] };
  const all = onlyContrast ? { violations: [] } : await axe.run({ exclude: without }, options);
  const contrast = await axe.run({ exclude: "#fabric svg" }, { runOnly: { type: "rule", values: ["color-contrast"] } });
  return [...all.violations, ...contrast.violations].flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html}`));
};
run().then(done, (error) => done([String(error)]));
"""
SMALLEST = """
const texts = [...document.querySelectorAll("body *")].filter((each) => each.checkVisibility({ opacityProperty: true })
  && [...each.childNodes].some((child) => child.nodeType === 3 && child.data.trim()));
return Math.min(...texts.map((each) => parseFloat(getComputedStyle(each).fontSize) * (each.getScreenCTM?.().a ?? 1)));
"""


@pytest.mark.parametrize(
    ("fabric", "cut", "drained", "lossy", "ends"),
    [
        (4, "a0_0-c0_0", "c1_0", "a2_0-c0_1", ("h0_0_2", "h2_0_3")),
        (8, "a0_0-c0_0", "c1_0", "a2_0-c0_1", ("h0_0_2", "h2_0_3")),
        (SLOW_SPINE, "e0_0-a0_0", "e0_1-a0_1", "e0_2-a0_0", ("h0_1_2", "h0_2_3")),
    ],
    ids=["k=4", "k=8", "leaf-spine"],
)
def test_axe_finds_nothing_and_texts_are_large_enough(
    shown: Shown,
    driver: Chrome,
    stub: Stub,
    tmp_path: Path,
    fabric: Clos | int,
    cut: str,
    drained: str,
    lossy: str,
    ends: tuple[str, str],
) -> None:
    its = stub.serve(fabric, tmp_path)
    driver.set_script_timeout(300)
    with shown(its) as page:
        its.ask("cut", cut)
        its.ask("links_measured", {lossy: 0.2}, {})
        its.ask("send", 2e6)
        page.give_token(its.token)
        page.look_up(drained)
        page.drain(drained, "fan, ticket 4711")
        eventually(lambda: page.state(drained), "drained")
        page.show_paths(*ends)
        page.look_up(lossy)
        page.press(f"Drain {lossy}")
        page.run(AXE)
        large = fabric == 8  # of its drawing and table axe sees nothing that k=4 has not, in minutes
        if large:
            page.one("#table-wrong").click()
        for width, scheme, only_contrast in ((1920, "light", 0), (1920, "dark", 1), (360, "dark", 0), (360, "light", 1)):
            page.size(width, 900)
            page.scheme(scheme)
            eventually(
                lambda width=width: page.run("return document.documentElement.scrollWidth <= innerWidth && innerWidth"), width
            )
            assert driver.execute_async_script(DEFECTS, only_contrast, ["#fabric svg"] if large else []) == []
            assert page.run(SMALLEST) >= 9
