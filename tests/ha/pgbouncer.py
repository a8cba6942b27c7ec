"""A real PgBouncer in front of a PostgreSQL server: to start, kill and start again on the same port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from bench.embedded import _free_port
from tests.servers import host_and_port
from tests.waiting import wait_until

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")

needs_pgbouncer = pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed (apt-get install pgbouncer)")


class PgBouncer:
    def __init__(self, server: str, home: Path, mode: str, **settings: str | int) -> None:
        there = conninfo_to_dict(server)
        user, password = there["user"], there.get("password", "")
        self.port = _free_port()
        self.url = f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{there['dbname']}"
        self._home = home
        self._owner = pwd.getpwnam("nobody") if os.geteuid() == 0 else None  # it refuses to run as root
        users = home / "users"
        users.touch(0o600)
        users.write_text(f'"{user}" "{_as_kept(server) or password}"\n')
        if self._owner:
            os.chown(users, self._owner.pw_uid, self._owner.pw_gid)
        given = {
            "listen_addr": "127.0.0.1", "listen_port": self.port, "unix_socket_dir": "", "auth_type": "scram-sha-256",
            "auth_file": users, "pool_mode": mode, "max_client_conn": 500, "default_pool_size": 20, **settings,
        }  # fmt: skip
        host, port = host_and_port(server)
        lines = ["[databases]", f"* = host={host} port={port}", "[pgbouncer]"]
        (home / "pgbouncer.ini").write_text("\n".join([*lines, *(f"{k} = {v}" for k, v in given.items())]) + "\n")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        assert PROGRAM is not None
        identity: dict[str, Any] = {}
        if self._owner:
            identity = {"user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": []}
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, str(self._home / "pgbouncer.ini")], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                **identity,
            )  # fmt: skip
        wait_until(self._answers, "PgBouncer answers")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def log(self) -> str:
        return (self._home / "log").read_text(errors="replace")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True


def _as_kept(server: str) -> str | None:
    """The password as the server keeps it. PgBouncer would hash one in plain text with every connection."""
    with psycopg.connect(server) as db:
        row = db.execute("select rolpassword from pg_authid where rolname = current_user").fetchone()
    return None if row is None else row[0]


@contextmanager
def a_pgbouncer(server: str, mode: str, **settings: str | int) -> Iterator[PgBouncer]:
    with tempfile.TemporaryDirectory(prefix="holdfast-pgbouncer-") as home:
        Path(home).chmod(0o711)
        pooler = PgBouncer(server, Path(home), mode, **settings)
        try:
            yield pooler
        finally:
            pooler.kill()
