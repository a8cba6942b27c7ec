"""The files under deploy/: what their own tools say of them where these are installed, and that everyone who ends a
worker waits for as long as it may take. (No container is built here: that needs an engine and a registry.)"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from holdfast import Holdfast, JobContext
from holdfast.cli import cli
from holdfast.settings import Settings
from tests.servers import as_role, in_database, own_postgres

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "holdfast-worker@.service"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
MIGRATE, WORKER = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))

PODS = [kind["spec"]["template"]["spec"] for kind in (MIGRATE, WORKER)]
# What a worker and its processes do without. (CapabilityBoundingSet= without a value: no capability at all.)
HARDENING = {
    "NoNewPrivileges": "yes", "CapabilityBoundingSet": "", "AmbientCapabilities": "", "PrivateTmp": "yes",
    "PrivateDevices": "yes", "ProtectSystem": "strict", "ProtectHome": "yes", "ProtectProc": "invisible",
    "ProtectClock": "yes", "ProtectHostname": "yes", "ProtectControlGroups": "yes", "ProtectKernelLogs": "yes",
    "ProtectKernelModules": "yes", "ProtectKernelTunables": "yes", "LockPersonality": "yes",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6", "RestrictNamespaces": "yes", "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes", "SystemCallArchitectures": "native", "SystemCallFilter": "@system-service",
    "SystemCallErrorNumber": "EPERM", "UMask": "0077", "RuntimeDirectoryMode": "0700",
}  # fmt: skip
EXPOSURE = 20  # at most, of 100, as `systemd-analyze security` reckons it

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


def owners(service: str) -> str:
    """Whom it connects to the database as."""
    return str(re.findall(r"//(\w+):", COMPOSE["services"][service]["environment"]["HOLDFAST_URL"])[0])


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


@pytest.mark.parametrize(("name", "value"), HARDENING.items())
def test_the_unit_takes_away_what_a_worker_does_without(name: str, value: str) -> None:
    assert unit()[name] == [value]


@pytest.mark.parametrize("name", ["MemoryDenyWriteExecute", "RemoveIPC", "ProcSubset", "PrivateNetwork", "DynamicUser"])
def test_the_unit_leaves_what_workers_need(name: str) -> None:
    assert name not in unit()


needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@needs_systemd
def test_systemd_calls_the_unit_hardly_exposed() -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--no-pager", "--offline=true", f"--threshold={EXPOSURE}", str(UNIT)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "--offline" in done.stderr:
        pytest.skip("this systemd-analyze looks at running units only")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_systemd
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


@pytest.mark.parametrize("service", ["database", "migrate", "worker"])
def test_services_of_compose_get_by_with_little(service: str) -> None:
    given = COMPOSE["services"][service]
    assert given["read_only"] is True
    assert given["tmpfs"][0] == "/tmp"
    assert given["cap_drop"] == ["ALL"]
    assert given["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "ports", "network_mode", "pid"} & given.keys()
    assert service == "database" or given["build"]["dockerfile"] == "deploy/Containerfile", "which runs it as app"
    assert given.get("user") == ("postgres" if service == "database" else None)


@pytest.mark.parametrize("pod", PODS, ids=["migrate", "worker"])
def test_pods_get_by_with_little(pod: dict[str, Any]) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {
        "runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert container["volumeMounts"] == [{"name": "tmp", "mountPath": "/tmp"}]
    assert [(volume["name"], "emptyDir" in volume) for volume in pod["volumes"]] == [("tmp", True)]
    assert container["resources"]["limits"]["memory"]


def test_the_pods_of_workers_do_not_have_the_owners_secret() -> None:
    secrets = [pod["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]["name"] for pod in PODS]
    assert secrets == ["holdfast-owner", "holdfast-worker"]


@pytest.mark.parametrize("name", ["Containerfile", "compose.yaml", "kubernetes.yaml"])
def test_images_say_how_to_pin_them(name: str) -> None:
    text = (DEPLOY / name).read_text()
    assert "@sha256:" in text
    assert ":latest" not in text


def test_the_container_gets_no_code_it_could_change() -> None:
    assert "--chown" not in CONTAINERFILE
    assert CONTAINERFILE.index("COPY . ./") < CONTAINERFILE.index("USER app")


def test_the_roles_of_compose_can_migrate_and_work_and_no_more() -> None:
    [mounted] = [volume for volume in COMPOSE["services"]["database"]["volumes"] if volume.endswith(":ro")]
    script = DEPLOY / mounted.partition(":")[0]
    passwords = {"OWNER_PASSWORD": "o" * 32, "WORKER_PASSWORD": "w" * 32}
    assert COMPOSE["services"]["database"]["environment"].keys() > passwords.keys()
    with own_postgres() as server:
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute("create database app")
        subprocess.run(
            [server._bin / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", server._sockets, "-p", str(server.port),
             "-U", "postgres", "-d", "app", "-f", script], env={"PGPASSWORD": server.password, **passwords}, check=True,
        )  # fmt: skip
        app = in_database(server.url, "app")
        owner = as_role(app, owners("migrate"), passwords["OWNER_PASSWORD"])
        worker = as_role(app, owners("worker"), passwords["WORKER_PASSWORD"])
        with Holdfast(owner) as migrating:
            migrating.migrate()
        with Holdfast(worker) as working:

            @working.task
            def double(ctx: JobContext, n: int) -> int:
                ctx.checkpoint(n)
                return 2 * n

            job = double.using(key="one").enqueue(21)
            [joined, many] = working.enqueue_many([double.using(key="one", priority=5).bind(21), double.bind(4)])
            assert working.drain() == 2
            assert (joined.id, job.result, many.result) == (job.id, 42, 8)
        with psycopg.connect(worker, autocommit=True) as db:
            for forbidden in (
                "alter table holdfast.jobs add column x int", "drop schema holdfast cascade", "create schema mine",
                "create table public.mine (x int)", "copy (select 1) to program 'true'",
            ):  # fmt: skip
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    db.execute(forbidden.encode())
        with psycopg.connect(server.url) as db:
            powers = db.execute(
                "select rolname from pg_roles where rolname like 'app%' and (rolsuper or rolcreaterole or rolcreatedb "
                "or rolreplication or rolbypassrls)"
            ).fetchall()
            assert powers == []


def test_compose_takes_its_file() -> None:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    done = subprocess.run(
        ["docker", "compose", "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet"],
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "POSTGRES_PASSWORD": "x", "OWNER_PASSWORD": "x",
             "WORKER_PASSWORD": "x"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
