"""The files in deploy/ fit this release: settings, flags and metrics exist, the files are well-formed."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # its types are a separate package

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes" / "leasehold.yaml"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
BOARD = DEPLOY / "grafana" / "leasehold.json"
UNIT = DEPLOY / "systemd" / "leasehold-node.service"


def settings_shown(config: Path, environment: dict[str, str]) -> str:
    """The settings that `leasehold node` would use; an unknown one fails the test."""
    done = subprocess.run(
        [sys.executable, "-m", "leasehold", "node", "--config", str(config), "--show-settings"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(KUBERNETES.read_text()))


def of_kind(kind: str) -> dict[str, Any]:
    return next(each for each in manifests() if each["kind"] == kind)


def test_the_settings_and_the_environment_of_the_service_are_known() -> None:
    lines = (DEPLOY / "systemd" / "node.env").read_text().splitlines()
    environment = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    shown = settings_shown(DEPLOY / "leasehold.toml", environment)
    for value in environment.values():
        assert value in shown


def test_the_settings_on_kubernetes_are_known(tmp_path: Path) -> None:
    config = tmp_path / "leasehold.toml"
    config.write_text(of_kind("ConfigMap")["data"]["leasehold.toml"])
    container = of_kind("StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    done = {each["name"]: each.get("value", "leasehold-0") for each in container["env"]}
    shown = settings_shown(config, {name: value.replace("$(POD_IP)", "10.1.2.3") for name, value in done.items()})
    assert "10.1.2.3:50061" in shown


def test_every_file_that_a_store_address_names_is_mounted() -> None:
    pod = of_kind("StatefulSet")["spec"]["template"]["spec"]
    mounts = [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]]
    coord = tomllib.loads(of_kind("ConfigMap")["data"]["leasehold.toml"])["node"]["coord"]
    for path in re.findall(r"=(/[^&]+)", coord):
        assert any(path.startswith(mount + "/") for mount in mounts), path


def test_ports_and_labels_on_kubernetes_fit_together() -> None:
    labels = of_kind("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    container = of_kind("StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "admin"}
    for each in manifests():
        if each["kind"] == "Service":
            assert each["spec"]["selector"] == labels
            assert all(port["port"] == ports[port["name"]] for port in each["spec"]["ports"])
    allowed = {port["port"] for rule in of_kind("NetworkPolicy")["spec"]["ingress"] for port in rule["ports"]}
    assert allowed == set(ports.values())


def test_every_alert_is_explained() -> None:
    alerts = [rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    explained = re.findall(r"^\| `(Leasehold\w+)` \|", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    assert explained == alerts


def test_the_board_has_no_two_panels_in_one_place() -> None:
    panels = json.loads(BOARD.read_text())["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len({panel["id"] for panel in panels}) == len(panels)


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]  # keep the case of names
    parsed.read(UNIT)
    assert parsed["Service"]["KillMode"] == "mixed", "SIGTERM is for the guardian alone"
    assert parsed["Service"]["OOMPolicy"] == "continue", "a worker's death is not its guardian's"
    if shutil.which("systemd-analyze") is None:
        return  # no systemd on this machine: nothing more to check
    unit = tmp_path / UNIT.name  # its program must exist
    unit.write_text(UNIT.read_text().replace("/opt/leasehold/bin/leasehold", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
