"""The files of deploy/: systemd's own checks of the units, and the example files as the programs read them."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from oslo_config import cfg

from sopa_ryu import options
from sopa_ryu.cli import main
from sopa_ryu.exposure import Doors, exposures
from topologies import fabric_file

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").iterdir())
# systemd-analyze security: 0 is a program that may do nothing, 10 one that may do everything
MAX_EXPOSED = {"sopa-arbiter": 1.5, "sopa-controller": 1.5, "sopa-relay": 1.5}
MAX_EXPOSED |= dict.fromkeys(("sopa-agent", "sopa-parser", "sopa-spreader"), 3.0)

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing: make install")


def settings(unit: Path, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_a_unit_which_leaves_its_program_little_to_do_harm_with(unit: Path, tmp_path: Path) -> None:
    # of a template the instance for eth1, with commands that are on this machine
    file = tmp_path / unit.name.replace("@", "@eth1")
    file.write_text(unit.read_text().replace("/usr/local/bin/", "/bin/true /usr/local/bin/"))
    command = ["systemd-analyze", "verify", "--man=no", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    command = ["systemd-analyze", "security", "--offline=true", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert level is not None, done.stdout + done.stderr
    assert float(level[1]) <= MAX_EXPOSED[unit.name.partition(".")[0].rstrip("@")]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_comes_back_after_a_failure_and_ends_by_sigterm(unit: Path) -> None:
    # a parser's unit has no process that could end; an agent and a controller come back after any end
    assert settings(unit, "Restart") == ["on-failure" if "parser" in unit.name else "always"]
    assert settings(unit, "KillSignal") == ["SIGTERM"]
    [wanted_by] = settings(unit, "WantedBy")
    assert wanted_by.split()[0] == "multi-user.target"
    # a unit that ends with its interface has to start with it
    assert all(device in wanted_by for device in settings(unit, "BindsTo"))
    for command in settings(unit, "ExecStart") + settings(unit, "ExecStop"):
        assert command.startswith(("/usr/local/bin/sopa ", "/usr/local/bin/ryu-manager "))


def parsed(file: Path) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    options.register(conf)
    conf(["--config-file", str(file)], project="ryu", default_config_files=[])
    return conf


def test_the_example_configuration_names_every_option_with_its_default(tmp_path: Path) -> None:
    closed = {"ovsdb": ("ssl:*:6640",), "bind_certificates": True, "host_tokens_only": True}
    closed |= {f"tls_{each}": Path(f"/etc/sopa/tls/controller.{end}") for each, end in (("cert", "pem"), ("key", "key"))}
    assert options.settings(parsed(DEPLOY / "sopa.conf")) == replace(options.Settings(), **closed)
    text = (DEPLOY / "sopa.conf").read_text()
    doors = Doors("", "192.0.2.1", openflow_tls="\nctl_privkey" in text, ca_certs="its" if "\nca_certs" in text else None)
    assert [*exposures(options.settings(parsed(DEPLOY / "sopa.conf")), doors)] == []
    section = text.partition("[sopa]")[2]
    lines = re.findall(r"^#?(\w+) = (.*)$", section, re.MULTILINE)
    assert {name for name, _ in lines} == {option.dest for option in options._OPTIONS}
    # values given as defaults are the defaults, and values marked as examples are accepted
    file = tmp_path / "all.conf"
    together = [(name, value) for name, value in lines if name != "fabric"]  # which excludes k
    file.write_text("[sopa]\n" + "\n".join(f"{name} = {value}" for name, value in together) + "\n")
    shown, defaults = options.settings(parsed(file)), options.Settings()
    examples = set(re.findall(r"examples?:\n((?:#\w+ = .*\n)+)", section))
    exemplary = {line.strip("#").partition(" ")[0] for block in examples for line in block.splitlines()}
    of_cluster = {name for name, _ in lines if name.startswith("cluster")}
    wanted = {"no_label", "link_mbit", "proxy", "origin", "fabric"}
    assert exemplary - of_cluster == wanted
    assert of_cluster - exemplary == {"cluster_lease"}
    assert shown.cluster is not None
    assert shown.cluster.engine == "etcd://192.0.2.1:2379,192.0.2.2:2379,192.0.2.3:2379/sopa"
    assert shown.cluster.lease == options.ClusterSettings.lease
    for name in {name for name, _ in lines} - exemplary - of_cluster - closed.keys():
        assert getattr(shown, name) == getattr(defaults, name), name


@pytest.mark.parametrize("example", sorted((DEPLOY / "fabrics").iterdir()), ids=lambda file: file.name)
def test_the_example_configuration_takes_the_example_fabrics(example: Path, tmp_path: Path) -> None:
    file = tmp_path / "sopa.conf"
    file.write_text((DEPLOY / "sopa.conf").read_text().replace("#fabric = /etc/sopa/fabric.yaml", f"fabric = {example}"))
    found = options.settings(parsed(file))
    assert (found.tree, found.fabric) == (fabric_file.load(example, found.prefix6), example)


@pytest.mark.parametrize(("name", "unit"), [("agent", "sopa-agent@"), ("arbiter", "sopa-arbiter"), ("relay", "sopa-relay")])
def test_an_example_of_an_environment_names_what_its_unit_and_command_read(name: str, unit: str) -> None:
    lines = re.findall(r"^#?(\w+)=(.*)$", (DEPLOY / f"{name}.env").read_text(), re.MULTILINE)
    names = {name for name, _ in lines}
    [command] = settings(DEPLOY / f"systemd/{unit}.service", "ExecStart")
    in_unit = set(re.findall(r"\$\{?(\w+)", command))
    its = main.get_command(click.Context(main), name)
    assert its is not None
    in_command = {str(param.envvar) for param in its.params if param.envvar}
    assert names == in_unit | in_command


def test_the_guide_says_what_to_do_about_every_alarm() -> None:
    guide = (ROOT / "docs/alarms.md").read_text()
    rules = (DEPLOY / "prometheus/sopa.rules.yml").read_text()
    alarms = re.findall(r"alert: (\w+)", rules)
    assert rules.count("runbook_url: file:///opt/sopa/docs/alarms.md#alarms\n") == len(alarms) > 0
    assert "\n## Alarms\n" in guide
    assert [alarm for alarm in alarms if f"| {alarm} |" not in guide] == []


def options_of(command: str) -> set[str]:
    its = main.get_command(click.Context(main), command)
    assert its is not None
    return {option for parameter in its.params for option in parameter.opts}


def test_the_containers_of_an_agent_and_of_a_controller_may_do_what_their_units_may() -> None:
    def containers(name: str) -> Any:
        return next(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))["spec"]["template"]["spec"]

    agent, controller = containers("agent.yaml"), containers("controller.yaml")
    [its] = agent["containers"]
    given = its["securityContext"]["capabilities"]
    [bounds] = settings(DEPLOY / "systemd/sopa-agent@.service", "CapabilityBoundingSet")
    assert (given["drop"], {f"CAP_{name}" for name in given["add"]}) == (["ALL"], set(bounds.split()))
    assert {word.partition("=")[0] for word in its["args"]} <= options_of("agent")
    mounted = {each["mountPath"]: each["name"] for each in its["volumeMounts"]}
    [where] = [each["value"] for each in its["env"] if each["name"] == "SOPA_PROC_SYS_NET"]
    assert {"name": mounted[where], "hostPath": {"path": "/proc/sys/net", "type": "Directory"}} in agent["volumes"]
    # the user that scripts/image_root.sh makes
    user = controller["securityContext"]["runAsUser"]
    assert f"sopa:x:{user}:{user}:" in (ROOT / "scripts/image_root.sh").read_text()
    assert controller["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    # the node's network implies them, and podman kube play, which needs no cluster, refuses both
    assert (controller["hostNetwork"], [port for port in controller["containers"][0]["ports"] if "hostPort" in port]) == (True, [])


def test_compose_starts_programs_with_options_that_they_have() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    controllers = {f"--sopa-{option.name.replace('_', '-')}" for option in options._OPTIONS}
    known = controllers | {"--wsapi-host", "--wsapi-port", "--ofp-tcp-listen-port", "--ofp-ssl-listen-port"}
    for name, service in services.items():
        given = {word.partition("=")[0] for word in service["command"] if word.startswith("--")}
        assert name == "etcd" or given <= (options_of("relay") if "entrypoint" in service else known)
    ports = [service["command"][3:] for name, service in services.items() if name in ("c1", "c2", "c3")]
    assert len({word for words in ports for word in words if "tcp" in word or "wsapi" in word}) == 6  # on one machine
