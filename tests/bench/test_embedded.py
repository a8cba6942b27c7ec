"""The private PostgreSQL of tests and benchmarks. Its superuser may run programs, so no other user of the machine gets
in."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bench import embedded
from bench.embedded import EmbeddedPostgres
from holdfast.errors import BadSettings
from tests.servers import own_postgres

NOT_FOR_OTHERS = "HOLDFAST_TEST_NOT_FOR_OTHERS"
PROGRAM = "copy (select 1) to program 'cat > /dev/null'"
LISTENS = "0A"  # in /proc/net/tcp

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    os.environ[NOT_FOR_OTHERS] = "canary"
    try:
        with own_postgres() as server:
            yield server
    finally:
        del os.environ[NOT_FOR_OTHERS]


@pytest.fixture(scope="module")
def on_tcp() -> Iterator[EmbeddedPostgres]:
    with own_postgres(tcp=True) as server:
        yield server


def process_of(server: EmbeddedPostgres) -> Path:
    return Path("/proc", (server._data / "postmaster.pid").read_text().split()[0])


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def ports_of(server: EmbeddedPostgres) -> list[str]:
    """Where it listens by TCP, as the kernel says."""
    open_files = [os.readlink(each) for each in (process_of(server) / "fd").iterdir()]
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return [line[1] for line in lines if line[3] == LISTENS and f"socket:[{line[9]}]" in open_files]


@on_linux
def test_no_port_is_open_unless_it_is_asked_for(server: EmbeddedPostgres, on_tcp: EmbeddedPostgres) -> None:
    assert ports_of(server) == []
    assert ports_of(on_tcp) == [f"0100007F:{on_tcp.port:04X}"]
    assert "127.0.0.1" not in server.url
    assert "127.0.0.1" in on_tcp.url


def test_only_its_user_may_enter_its_directories(server: EmbeddedPostgres) -> None:
    owner = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else os.geteuid()
    assert server._home.stat().st_uid == os.geteuid()
    assert mode_of(server._home) == (0o711 if os.geteuid() == 0 else 0o700)
    for private in (server._data, server._sockets):
        assert (mode_of(private), private.stat().st_uid) == (0o700, owner)
    [socket] = server._sockets.glob(f"*.{server.port}")
    assert mode_of(socket) == 0o700


@pytest.mark.parametrize("which", ["server", "on_tcp"])
def test_every_rule_asks_for_a_password(which: str, request: pytest.FixtureRequest) -> None:
    with psycopg.connect(request.getfixturevalue(which).url) as db:
        methods = db.execute("select distinct auth_method from pg_hba_file_rules").fetchall()
        assert methods == [("scram-sha-256",)]
        [(kept,)] = db.execute("select rolpassword from pg_authid where rolname = 'postgres'").fetchall()
        assert kept.startswith("SCRAM-SHA-256$")


def test_two_servers_have_two_passwords(server: EmbeddedPostgres, on_tcp: EmbeddedPostgres) -> None:
    assert server.password != on_tcp.password
    assert len(server.password) >= 32


def test_the_password_is_in_no_file_of_the_server(server: EmbeddedPostgres) -> None:
    password = server.password.encode()
    for path in server._home.rglob("*"):
        if path.is_file() and not path.is_symlink() and "install" not in path.parts:
            assert password not in path.read_bytes(), path


@on_linux
def test_the_server_is_told_neither_the_password_nor_our_environment(server: EmbeddedPostgres) -> None:
    process = process_of(server)
    command, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
    assert command
    assert server.password.encode() not in command + environment
    assert NOT_FOR_OTHERS.encode() not in environment


@on_linux
@as_root
def test_a_server_started_by_root_has_none_of_its_groups(server: EmbeddedPostgres) -> None:
    status = dict(line.split(":", 1) for line in (process_of(server) / "status").read_text().splitlines())
    nobody = pwd.getpwnam("nobody")
    assert set(status["Uid"].split()) == {str(nobody.pw_uid)}
    assert set(status["Gid"].split()) == {str(nobody.pw_gid)}
    assert status["Groups"].split() == []


def psql(server: EmbeddedPostgres, host: str, user: str, password: str | None) -> subprocess.CompletedProcess[str]:
    """What this user of the machine gets who tries to run a program as the server's user."""
    account = pwd.getpwnam(user)
    identity: dict[str, Any] = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    return subprocess.run(
        [server._bin / "psql", "-X", "-w", "-h", host, "-p", str(server.port), "-U", "postgres", "-c", PROGRAM],
        env={} if password is None else {"PGPASSWORD": password}, cwd="/", capture_output=True, text=True,
        timeout=30, check=False, **identity,
    )  # fmt: skip


@as_root
def test_another_user_of_this_machine_gets_nowhere(server: EmbeddedPostgres, on_tcp: EmbeddedPostgres) -> None:
    """Even with the password, the socket is out of reach; where there is a port, nothing goes without the password."""
    reached = {
        "socket": psql(server, str(server._sockets), "daemon", server.password),
        "socket as the server's user": psql(server, str(server._sockets), "nobody", None),
        "tcp": psql(on_tcp, "127.0.0.1", "daemon", None),
        "tcp, guessing": psql(on_tcp, "127.0.0.1", "daemon", server.password),
    }
    assert {how: done.returncode for how, done in reached.items()} == dict.fromkeys(reached, 2)
    assert "Permission denied" in reached["socket"].stderr
    assert "no password supplied" in reached["socket as the server's user"].stderr
    assert "no password supplied" in reached["tcp"].stderr
    assert "password authentication failed" in reached["tcp, guessing"].stderr
    assert psql(on_tcp, "127.0.0.1", "daemon", on_tcp.password).returncode == 0, "so it is not for some other reason"


@as_root
def test_a_server_whose_programs_its_user_cannot_reach_runs_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmbeddedPostgres, "_can_run", lambda self, program: False)
    with own_postgres() as server, psycopg.connect(server.url) as db:
        assert server._bin.is_relative_to(server._home)
        assert db.execute("select 1").fetchone() == (1,)


@pytest.mark.parametrize("name", ["long" * 20, "with,comma"])
def test_a_temporary_directory_that_suits_no_socket_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
    (tmp_path / name).mkdir()
    home = embedded._new_home()
    try:
        assert str(home.parent) == embedded.SHORT
        assert mode_of(home) == 0o700
    finally:
        home.rmdir()


def test_a_directory_where_others_can_swap_ours_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(embedded, "SHORT", str(tmp_path))
    with pytest.raises(BadSettings, match="set TMPDIR to another one"):
        embedded._new_home()
    assert list(tmp_path.iterdir()) == []
