"""Shipping: locked versions that fit, a reproducible wheel with its SBOM, and the wheel in an empty environment."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKS = ("run.txt", "dev.txt", "build.txt")


def locked(name: str) -> dict[str, Version]:
    pins = re.findall(
        r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", (REQUIREMENTS / name).read_text(), re.MULTILINE
    )
    return {canonicalize_name(package): Version(version) for package, version in pins}


def wanted(requirements: list[str]) -> Iterator[Requirement]:
    """The requirements, with those of our own extras in place of `leasehold[...]`."""
    for text in requirements:
        requirement = Requirement(text)
        if requirement.name == PROJECT["name"]:
            for extra in sorted(requirement.extras):
                yield from wanted(PROJECT["optional-dependencies"][extra])
        else:
            yield requirement


@pytest.mark.parametrize(
    ("name", "requirements"),
    [
        ("run.txt", PROJECT["dependencies"]),
        ("dev.txt", PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]),
    ],
)
def test_the_locked_versions_fit_the_project(name: str, requirements: list[str]) -> None:
    pins = locked(name)
    missing = [
        str(each)
        for each in wanted(requirements)
        if not each.specifier.contains(pins.get(canonicalize_name(each.name), "0.dev0"), prereleases=True)
    ]
    assert missing == [], "run scripts/lock"


def test_all_locks_have_the_same_versions() -> None:
    everything = locked("dev.txt")
    for name in ("run.txt", "build.txt"):
        assert locked(name).items() <= everything.items(), "run scripts/lock"


@pytest.mark.parametrize("name", LOCKS)
def test_every_version_has_hashes_and_no_address(name: str) -> None:
    text = (REQUIREMENTS / name).read_text()
    blocks = re.split(r"\n(?=[A-Za-z0-9])", text)
    assert [block.splitlines()[0] for block in blocks[1:] if "--hash=sha256:" not in block] == []
    assert "://" not in text
    assert "--index-url" not in text


def test_the_image_uses_the_locks() -> None:
    lines = (ROOT / "deploy" / "Containerfile").read_text()
    assert lines.count("--require-hashes") == 2
    for line in re.findall(r"pip install[^\\\n&]*", lines):
        assert "--require-hashes" in line or "--no-index" in line, line


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the wheel and the SBOM of the last commit; the script fails if two builds differ."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "build-wheel"), str(folder)],
        capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "built twice, the same bytes" in done.stdout
    return folder


@pytest.mark.xdist_group("ship")
def test_the_wheel_has_the_package_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"leasehold", f"leasehold-{PROJECT['version']}.dist-info"}
    assert "leasehold/admin/static/index.html" in names
    assert "leasehold/py.typed" in names


@pytest.mark.xdist_group("ship")
def test_the_sbom_lists_every_locked_package(dist: Path) -> None:
    (sbom,) = dist.glob("*.cdx.json")
    document = json.loads(sbom.read_text())
    assert document["bomFormat"] == "CycloneDX"
    assert document["metadata"]["component"]["name"] == PROJECT["name"]
    listed = {canonicalize_name(each["name"]): Version(each["version"]) for each in document["components"]}
    assert listed == locked("run.txt")


@pytest.mark.timeout(900)  # a minute; on a busy machine several
@pytest.mark.xdist_group("ship")
def test_the_wheel_runs_in_an_empty_environment() -> None:
    """On the Python at hand: version, sim, up with bytes in and out, demo. `scripts/test-pythons` tries all Pythons."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "test-pythons"), "--python", str(base)],
        capture_output=True, text=True, check=False, timeout=880,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "demo: all held" in done.stdout
