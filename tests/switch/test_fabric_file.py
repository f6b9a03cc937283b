"""A controller with a fabric file: what fits it, what does not, and what a changed or broken file does."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from experiments.emulation.processes import ControllerProcess, free_ports
from tests.helpers.commands import ask
from tests.helpers.fabrics import running
from tests.helpers.waiting import Containing, eventually
from topologies.fabric_file import dump, parse
from topologies.lab.private_ovs import DummyFabric, PrivateOvs

pytestmark = pytest.mark.switch

TEXT = "pods: 1\nedges: 3\naggregations: 2\ncores: 0\nhosts: 2\nlinks:\n  e0_1-a0_0: absent\n"


def add_port(ovs: PrivateOvs, name: str, port: int) -> None:
    interface = f"{name}-eth{port}"
    ovs.vsctl("add-port", name, interface, "--", "set", "Interface", interface, "type=dummy", f"ofport_request={port}")


def test_switches_that_fit_are_used_and_others_told_the_file_until_it_changes(tmp_path: Path) -> None:
    tree, log, ports = parse(TEXT).fabric, tmp_path / "controller.log", free_ports(2)
    with PrivateOvs(tmp_path / "ovs", dummy=True) as ovs:
        with ControllerProcess(tree, log, *ports) as controller:
            DummyFabric(tree, ovs, controller.openflow)
            controller.wait_connected(tree.switch_count)
            for host, found in (("h0_1_2", "1 of 1 paths"), ("h0_2_2", "2 of 2 paths")):
                said = ask(controller, "paths", "h0_0_2", host)
                assert (said.exit_code, found in said.stdout) == (0, True), said.output
            said = ask(controller, "status")
            assert "3x2 leaf-spine fabric, 5 switches, 6 hosts" in said.stdout
            assert "5 of 5 switches" in said.stdout

            # the port of an absent link may be there: e0_1's to a0_0 is 3
            add_port(ovs, "e0_1", 3)
            ovs.appctl("bridge/reconnect", "e0_1")
            ovs.vsctl("del-port", "e0_2-eth1")
            ovs.appctl("bridge/reconnect", "e0_2")
            file = log.with_suffix(".fabric.yaml")
            told = f"e0_2 has ports 2-4, but {file} plans 1-4. sopa doctor switch --fabric {file} there says what mends it"
            eventually(lambda: [told in its["reason"] for its in controller.fabric()["rejected"]], [True])
            eventually(lambda: controller.fabric()["connected"], 4)
            add_port(ovs, "e0_2", 1)
            add_port(ovs, "a0_0", 2)  # to e0_1, for the other file
            for name in ("a0_1", "e0_2-a0_0"):
                assert controller.change("PUT", f"/drains/{name}").status_code == 200
        now = parse(TEXT.replace("e0_1-a0_0", "e0_2-a0_0")).fabric
        with ControllerProcess(now, log, *ports) as controller:
            controller.wait_connected(now.switch_count)
            assert controller.get("/drains").json()["drains"] == ["a0_1"]
        said_now = log.read_text()
        changed = "links.e0_1-a0_0 as usual instead of absent; links.e0_2-a0_0 absent instead of as usual"
        _, before, after = said_now.partition(f"the fabric differs from the one of the last start: {changed}")
        assert before
        assert "SOPA controller for a 3x2 leaf-spine fabric" in after
        assert "this fabric has no e0_2-a0_0, drained before the start. These drains are now in drains.refused" in said_now

        # a broken file ends the start and changes nothing
        kept = {file.name: file.read_bytes() for file in controller.state_dir.iterdir()}
        flows = ovs.ofctl("dump-flows", "e0_0", "--no-stats")
        file = tmp_path / "broken.yaml"
        file.write_text(dump(now).replace("hosts: 2", "hosts: 2000") + "colour: red\n")
        command = [*controller.command[:3], f"--sopa-fabric={file}", *controller.command[4:]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert f"ryu-manager: {file}:5: hosts: must be a number from 1 to 252, not 2000" in done.stderr
        assert f"{file}:8: colour: is no key of a fabric file" in done.stderr
        assert "Traceback" not in done.stderr
        assert {file.name: file.read_bytes() for file in controller.state_dir.iterdir()} == kept
        assert ovs.ofctl("dump-flows", "e0_0", "--no-stats") == flows


def test_a_running_controller_takes_a_changed_file_or_says_why_not(tmp_path: Path) -> None:
    log, names = tmp_path / "controller.log", "names: {a0_0: leaf-12, h0_0_2: web-1}\n"
    file = log.with_suffix(".fabric.yaml")
    tree = parse(TEXT + names).fabric
    refused, other = "is not taken, the fabric stays as it is: ", names.replace("12", "13") + "ports: {a0_0: {1: Eth1}}"
    whole = TEXT.replace("links:\n  e0_1-a0_0: absent\n", "")
    with running(tree, tmp_path, "--sopa-no-label=h0_2_3", "--sopa-settle=3") as its:
        controller, ovs = its.controller, its.ovs
        assert controller.change("PUT", "/drains/a0_1").status_code == 200

        def reload(text: str, said: str) -> None:
            file.write_text(f"{text}\n")
            os.kill(controller.pid, signal.SIGUSR1)
            eventually(log.read_text, Containing(said))

        for text, said in (
            (TEXT + other, "names.a0_0 leaf-13 instead of leaf-12; ports.a0_0 {1: 'Eth1'} instead of nothing"),
            (f"{TEXT}{other} # so", "was read anew: nothing has changed"),
            (f"{TEXT}{names}racks: {{e9_9: B}}", f"{refused}{file}:9: racks.e9_9: 'e9_9' is no switch or host"),
            (whole + names, "e0_1 has no port 3: sopa fabric plan prints what makes it; a0_0 (leaf-13) has no port 2"),
            (TEXT.replace("edges: 3", "edges: 2"), f"{refused}no-label: 'h0_2_3' is no switch or host"),
        ):
            reload(text, said)
        assert controller.get("/names").json()["names"][0] == {"name": "a0_0", "alias": "leaf-13", "ports": {"1": "Eth1"}}

        def refusals() -> list[bool]:
            events = controller.get("/events").json()["events"]
            return [str(file) in its["cause"] for its in events if its["kind"] == "refused"]

        eventually(refusals, [True] * 3)

        # what more than names has changed is taken by a restart in the same process: drains stay
        for switch, port in (("a0_0", 2), ("e0_1", 3)):
            add_port(ovs, switch, port)
        controller.read_anew(f"{whole}gateways: [h0_0_2]\n{names}")
        assert "was read anew: links.e0_1-a0_0 as usual instead of absent; gateways with h0_0_2" in log.read_text()
        controller.wait_connected(tree.switch_count)
        assert controller.get("/paths", src="h0_0_2", dst="h0_1_2").json()["total"] == 2
        assert controller.get("/drains").json()["drains"] == ["a0_1"]
        assert controller.get("/names").json()["names"][0]["alias"] == "leaf-12"
    with ControllerProcess(2, log, *free_ports(2)) as controller:
        os.kill(controller.pid, signal.SIGUSR1)
        eventually(log.read_text, Containing("there is no fabric file to read anew"))
