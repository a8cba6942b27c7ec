"""The files under deploy/: what their own tools say of them where these are installed, and that everyone who ends a
worker waits for as long as it may take. (No container is built here: that needs an engine and a registry.)"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.cli import cli
from holdfast.settings import Settings

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "holdfast-worker@.service"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
MIGRATE, WORKER = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))

LONGEST_STOP = Settings().grace + 2  # as docs/operating.md has it
INSTRUCTIONS = {
    "FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER", "STOPSIGNAL", "ENTRYPOINT", "CMD", "ARG", "EXPOSE", "VOLUME",
}  # fmt: skip


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def unit() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        if re.match(r"\w+=", line):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_everyone_waits_longer_than_a_worker_may_take_to_stop() -> None:
    assert seconds(unit()["TimeoutStopSec"][0]) >= LONGEST_STOP
    assert seconds(COMPOSE["services"]["worker"]["stop_grace_period"]) >= LONGEST_STOP
    assert WORKER["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= LONGEST_STOP


def test_the_unit_signals_the_worker_and_lets_it_end() -> None:
    found = unit()
    assert found["KillMode"] == ["mixed"]
    assert found["KillSignal"] == ["SIGTERM"]
    assert found["Restart"] == ["always"]
    # Where workers meet: one place for all of them, that stays when one ends.
    assert found["Environment"] == ["XDG_RUNTIME_DIR=%t/" + found["RuntimeDirectory"][0]]
    assert found["RuntimeDirectoryPreserve"] == ["yes"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    """With paths of this machine in place of those of the example, which don't exist here."""
    text = UNIT.read_text().replace("/srv/app/.venv/bin/holdfast", str(Path(sys.executable).with_name("holdfast")))
    text = text.replace("/srv/app", str(tmp_path)).replace("User=app", "User=root")
    (tmp_path / UNIT.name).write_text(text)
    instance = tmp_path / UNIT.name.replace("@", "@1")
    instance.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(instance)], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if "holdfast" in line]
    assert not said, said


def test_the_container_file_is_well_formed_and_runs_no_shell() -> None:
    lines = re.sub(r"\\\n", " ", CONTAINERFILE).splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    assert {name for name, _ in steps} <= INSTRUCTIONS
    assert steps[0][0] == "FROM"
    assert re.search(r":\d", steps[0][1]), "a version, not whatever is latest"
    last = dict(steps)
    assert last["ENTRYPOINT"] == '["holdfast"]'
    assert last["USER"] == "app"
    assert last["STOPSIGNAL"] == "SIGTERM"
    assert yaml.safe_load(last["CMD"]) == ["worker", "app:hf"]


@pytest.mark.parametrize(
    "arguments",
    [
        yaml.safe_load(re.findall("^CMD (.*)$", CONTAINERFILE, re.MULTILINE)[0]),
        unit()["ExecStart"][0].split()[1:],
        *(service["command"] for service in COMPOSE["services"].values() if "command" in service),
        *(kind["spec"]["template"]["spec"]["containers"][0]["args"] for kind in (MIGRATE, WORKER)),
    ],
)
def test_the_commands_are_commands_of_ours(arguments: list[str]) -> None:
    command = cli.commands[arguments[0]]
    command.make_context(arguments[0], arguments[1:], resilient_parsing=False).close()


def test_settings_named_in_the_files_exist() -> None:
    for path in DEPLOY.iterdir():
        for name in re.findall(r"HOLDFAST_([A-Z_]+)", path.read_text()):
            assert hasattr(Settings(), name.lower()), f"{path.name}: HOLDFAST_{name}"


def test_compose_takes_its_file() -> None:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    done = subprocess.run(
        ["docker", "compose", "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet"],
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "POSTGRES_PASSWORD": "x"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
