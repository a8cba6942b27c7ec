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
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast.embedded import _free_port
from tests.waiting import wait_until

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")

needs_pgbouncer = pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed (apt-get install pgbouncer)")


class PgBouncer:
    def __init__(self, server: str, home: Path, mode: str, **settings: str | int) -> None:
        parts = urlsplit(server)
        self.port = _free_port()
        self.url = f"postgresql://{parts.username}@127.0.0.1:{self.port}{parts.path}"
        self._home = home
        self._user = pwd.getpwnam("nobody").pw_name if os.geteuid() == 0 else None  # it refuses to run as root
        (home / "users").write_text(f'"{parts.username}" ""\n')
        given = {
            "listen_addr": "127.0.0.1", "listen_port": self.port, "unix_socket_dir": "", "auth_type": "trust",
            "auth_file": home / "users", "pool_mode": mode, "max_client_conn": 500, "default_pool_size": 20, **settings,
        }  # fmt: skip
        lines = ["[databases]", f"* = host={parts.hostname} port={parts.port}", "[pgbouncer]"]
        (home / "pgbouncer.ini").write_text("\n".join([*lines, *(f"{k} = {v}" for k, v in given.items())]) + "\n")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        assert PROGRAM is not None
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, str(self._home / "pgbouncer.ini")], user=self._user, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, cwd="/",
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


@contextmanager
def a_pgbouncer(server: str, mode: str, **settings: str | int) -> Iterator[PgBouncer]:
    with tempfile.TemporaryDirectory(prefix="holdfast-pgbouncer-") as home:
        Path(home).chmod(0o755)
        pooler = PgBouncer(server, Path(home), mode, **settings)
        try:
            yield pooler
        finally:
            pooler.kill()
