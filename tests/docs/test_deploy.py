"""The files under deploy/: what their own tools say of them where these are installed, that everyone who ends a worker
waits for as long as it may take, and that their commands run with the environment they give them, on a real PostgreSQL
and with the README's application. (No container is built here: that needs an engine and a registry.)"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from bench.embedded import EmbeddedPostgres
from holdfast import Holdfast, JobContext
from holdfast.cli import cli
from holdfast.settings import Settings, redact
from tests.docs.snippets import ROOT, snippets
from tests.servers import as_role, in_database, own_postgres
from tests.waiting import wait_until

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "holdfast-worker@.service"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
COMPOSE: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
MIGRATE, WORKER = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))

PORT = "127.0.0.1:8081"  # where workers answer
HEALTH = yaml.safe_load(re.findall(r"^HEALTHCHECK .* CMD (.*)$", CONTAINERFILE, re.MULTILINE)[0])
PROBES = [
    WORKER["spec"]["template"]["spec"]["containers"][0][f"{kind}Probe"]["exec"]["command"]
    for kind in ("startup", "liveness", "readiness")
]

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
    "HEALTHCHECK",
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
    assert yaml.safe_load(last["CMD"]) == ["worker", "app:hf", "--http", PORT]


@pytest.mark.parametrize(
    "arguments",
    [
        yaml.safe_load(re.findall("^CMD (.*)$", CONTAINERFILE, re.MULTILINE)[0]),
        unit()["ExecStart"][0].split()[1:],
        *(service["command"] for service in COMPOSE["services"].values() if "command" in service),
        *(kind["spec"]["template"]["spec"]["containers"][0]["args"] for kind in (MIGRATE, WORKER)),
        *(command[1:] for command in (HEALTH, *PROBES)),
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


PASSWORDS = {"OWNER_PASSWORD": "o" * 32, "WORKER_PASSWORD": "w" * 32}


@contextmanager
def database_of_compose() -> Iterator[EmbeddedPostgres]:
    """What the service `database` is once it has started: the database, and the roles of the mounted script."""
    service = COMPOSE["services"]["database"]
    [mounted] = [volume for volume in service["volumes"] if volume.endswith(":ro")]
    assert service["environment"].keys() > PASSWORDS.keys()
    with own_postgres(tcp=True) as server:
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute(f"create database {service['environment']['POSTGRES_DB']}".encode())
        subprocess.run(
            [server._bin / "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", server._sockets, "-p", str(server.port),
             "-U", "postgres", "-d", "app", "-f", DEPLOY / mounted.partition(":")[0]],
            env={"PGPASSWORD": server.password, **PASSWORDS}, check=True,
        )  # fmt: skip
        yield server


@dataclass
class Run:
    """A command of deploy/ with its environment."""

    arguments: list[str]
    environment: dict[str, str]

    def start(self, directory: Path, *program: str) -> subprocess.Popen[str]:
        # Tests run side by side, and each wants a port.
        arguments = [argument.replace(PORT, "127.0.0.1:0") for argument in self.arguments]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        return subprocess.Popen(
            program or [sys.executable, "-m", "holdfast", *arguments], cwd=directory, text=True,
            env={**kept, **self.environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip


def of_image(command: list[str] | None, environment: dict[str, str]) -> Run:
    """A container of the Containerfile's image. Its entry point is `holdfast`."""
    joined = CONTAINERFILE.replace("\\\n", " ")
    image = dict(pair.split("=") for line in re.findall(r"^ENV (.*)$", joined, re.MULTILINE) for pair in line.split())
    default = yaml.safe_load(re.findall("^CMD (.*)$", CONTAINERFILE, re.MULTILINE)[0])
    return Run(command or default, {**image, **environment})


def in_compose(server: EmbeddedPostgres, service: str) -> Run:
    def filled(value: str) -> str:
        value = re.sub(r"\$\{(\w+)\}", lambda found: PASSWORDS[found[1]], value)
        return value.replace("@database/", f"@127.0.0.1:{server.port}/")  # the service's name is its host's

    given = COMPOSE["services"][service]
    return of_image(given["command"], {name: filled(value) for name, value in given["environment"].items()})


def in_kubernetes(server: EmbeddedPostgres, pod: dict[str, Any]) -> Run:
    app = in_database(server.url, "app")
    secrets = {
        "holdfast-owner": as_role(app, "app_owner", PASSWORDS["OWNER_PASSWORD"]),
        "holdfast-worker": as_role(app, "app_worker", PASSWORDS["WORKER_PASSWORD"]),
    }
    [container] = pod["containers"]
    environment = {}
    for variable in container["env"]:
        match variable["valueFrom"]:
            case {"secretKeyRef": {"name": name, "key": "url"}}:
                environment[variable["name"]] = secrets[name]
            case {"fieldRef": {"fieldPath": "metadata.name"}}:
                environment[variable["name"]] = "holdfast-worker-5c9f"
            case other:
                raise AssertionError(other)
    return of_image(container["args"], environment)


def in_systemd(server: EmbeddedPostgres, directory: Path) -> Run:
    name, _, value = unit()["Environment"][0].partition("=")
    (directory / "holdfast").mkdir(mode=int(unit()["RuntimeDirectoryMode"][0], 8))
    url = as_role(in_database(server.url, "app"), "app_worker", PASSWORDS["WORKER_PASSWORD"])
    return Run(
        unit()["ExecStart"][0].split()[1:], {name: value.replace("%t", str(directory)), "HOLDFAST_URL": url}
    )  # fmt: skip


@pytest.mark.parametrize("where", ["compose", "image", "kubernetes", "systemd"])
def test_the_commands_run_the_readmes_application(where: str, tmp_path: Path) -> None:
    [app] = [snippet for snippet in snippets(ROOT / "README.md") if snippet.file == "app.py"]
    (tmp_path / "app.py").write_text(app.code)
    with database_of_compose() as server:
        if where == "kubernetes":
            migrate, worker = (in_kubernetes(server, pod) for pod in PODS)
        else:
            migrate, worker = in_compose(server, "migrate"), in_compose(server, "worker")
        if where == "image":
            worker = of_image(None, worker.environment)
        if where == "systemd":
            worker = in_systemd(server, tmp_path)
        migrated = migrate.start(tmp_path)
        _, said = migrated.communicate(timeout=60)
        assert (migrated.returncode, "is up to date" in said) == (0, True), said
        working = worker.start(tmp_path)
        try:
            program = worker.start(tmp_path, sys.executable, "app.py")
            assert program.communicate(timeout=90) == ("{'url': 'https://example.org', 'score': 87} 87\n", "")
            working.terminate()
            _, said = working.communicate(timeout=LONGEST_STOP)
        finally:
            working.kill()
            working.wait()
        assert working.returncode == 0, said
        assert f"on {redact(worker.environment['HOLDFAST_URL'])}" in said
        assert worker.environment.get("HOLDFAST_WORKER_NAME", "") in said
    assert list(tmp_path.glob("*.db")) == []


def test_probes_and_health_check_tell_how_the_worker_is(tmp_path: Path) -> None:
    """As they are written, but for the port."""
    (tmp_path / "app.py").write_text(
        "from holdfast import Holdfast\nhf = Holdfast()\nhf.task(name='a')(lambda: None)\n"
    )
    worker = of_image(None, {"HOLDFAST_URL": "sqlite:///jobs.db"})
    with (tmp_path / "said.log").open("w") as said:
        working = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *[one.replace(PORT, "127.0.0.1:0") for one in worker.arguments]],
            cwd=tmp_path, env={**os.environ, **worker.environment}, stderr=said,
        )  # fmt: skip
    try:
        found = wait_until(lambda: re.search(r"http://(\S+)/health", (tmp_path / "said.log").read_text()))
        assert found

        def asked(command: list[str]) -> int:
            line = [sys.executable, "-m", *command, "--http", found[1]]
            return subprocess.run(line, capture_output=True, check=False).returncode

        for command in (HEALTH, *PROBES):
            wait_until(lambda: asked(command) == 0, str(command))  # noqa: B023 - it is awaited at once
    finally:
        working.terminate()
        working.wait(60)
    assert [asked(command) for command in (HEALTH, *PROBES)] == [1, 1, 1, 1]


def test_the_health_check_of_compose_tells_whether_the_database_answers() -> None:
    kind, command = COMPOSE["services"]["database"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    with database_of_compose() as server:
        environment = {"PATH": f"{server._bin}:{os.environ['PATH']}", "PGHOST": "127.0.0.1", "PGPORT": str(server.port)}
        check = ["sh", "-c", command]
        assert subprocess.run(check, env=environment, stdout=subprocess.DEVNULL, check=False).returncode == 0
        server.stop()
        assert subprocess.run(check, env=environment, stdout=subprocess.DEVNULL, check=False).returncode != 0


def test_the_roles_of_compose_can_migrate_and_work_and_no_more() -> None:
    with database_of_compose() as server:
        app = in_database(server.url, "app")
        owner = as_role(app, owners("migrate"), PASSWORDS["OWNER_PASSWORD"])
        worker = as_role(app, owners("worker"), PASSWORDS["WORKER_PASSWORD"])
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
            assert (joined.id, job.refresh().result, many.refresh().result) == (job.id, 42, 8)
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
