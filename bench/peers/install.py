"""Throw-away environments: one per contender, made once below a scratch directory and reused while its packages stay
the same. What can't be installed here is left out, and said."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from bench.peers.contenders import Contender

NEEDED_NODE = (22, 18)  # what Graphile Worker asks for


class CannotInstall(Exception):
    """This contender can't be installed here; the message says why."""


def install(contender: Contender, home: Path) -> list[str]:
    """Make its environment if it isn't there; returns how a command of its adapter is called."""
    place = home / contender.name
    if contender.ours:
        return _python(Path(sys.executable), contender)
    wanted = "\n".join(contender.packages)
    made = place / "packages.txt"
    if not (made.exists() and made.read_text() == wanted):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        if contender.adapter.endswith(".mjs"):
            _install_from_npm(contender, place)
        else:
            _install_from_pypi(contender, place)
        made.write_text(wanted)
    if contender.adapter.endswith(".mjs"):
        return [_node(place), str(Path(__file__).with_name(contender.adapter))]
    return _python(place / "bin" / "python", contender)


def _python(executable: Path, contender: Contender) -> list[str]:
    return [str(executable), "-m", "bench.peers.adapter", contender.adapter.removesuffix(".py")]


def _install_from_pypi(contender: Contender, place: Path) -> None:
    _run([sys.executable, "-m", "venv", str(place)])
    _run([str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *contender.packages])


def _install_from_npm(contender: Contender, place: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise CannotInstall(f"{contender.title} needs npm, and there is none")
    (place / "package.json").write_text('{"private": true}\n')
    _run([npm, "install", "--prefix", str(place), "--no-audit", "--no-fund", "--loglevel=error", *contender.packages])


def _node(place: Path) -> str:
    """The Node that npm brought, else one on the search path that is new enough."""
    for found in (str(place / "node_modules" / "node" / "bin" / "node"), shutil.which("node")):
        if found and _node_version(found) >= NEEDED_NODE:
            return found
    raise CannotInstall(f"it needs Node {NEEDED_NODE[0]}.{NEEDED_NODE[1]}, which npm did not bring")


def _node_version(node: str) -> tuple[int, ...]:
    try:
        said = subprocess.run([node, "--version"], check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ()
    return tuple(int(part) for part in said.strip().removeprefix("v").split("."))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise CannotInstall(done.stdout.strip()[-1000:])
