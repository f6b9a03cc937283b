"""A link that loses packets in one direction is named from what real agents report, and taken out of use where that is wanted."""

from __future__ import annotations

from experiments.emulation.bad_links import BadLinks
from experiments.emulation.sopa_lab import SopaLab
from tests.helpers.sopa_lab import in_lab
from tests.helpers.waiting import eventually

LINK = "a2_0-c0_1"


def test_a_grey_link_is_named_and_counts_as_failed_and_no_other() -> None:
    def suspects(lab: SopaLab) -> list[str]:
        return [link["name"] for link in lab.controller.get("/health", suspects="1").json()["links"]]

    def body(lab: SopaLab) -> None:
        eventually(lambda: lab.controller.get("/health").json()["running"], True, seconds=100)
        with BadLinks(lab.lab) as bad:
            bad.set_loss(LINK, "a2_0", 0.05, seed=3)
            eventually(lambda: suspects(lab), [LINK], seconds=100)
            eventually(lambda: dict(_failures(lab)), {LINK: "losing packets"}, seconds=60)
            assert f"link {LINK} loses" in lab.controller.log.read_text()
            assert bad.lost(LINK, "a2_0").hit > 0
            [link] = eventually(
                lambda: lab.controller.get("/health", suspects="1").json()["links"],
                lambda links: [link["action"] for link in links] == ["failed"],
            )
            assert link["delay_us"] is None or link["delay_us"] > 0

    in_lab(body, probes=True, controller_options=["--sopa-suspect=fail"])


def _failures(lab: SopaLab) -> list[tuple[str, str]]:
    return [(failure["name"], failure["reason"]) for failure in lab.controller.get("/failures").json()["failures"]]
