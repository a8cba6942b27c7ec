"""`make test-pythons`: the fast tests on every Python that we support and that can be had here: on the path, of pyenv,
or fetched by uv. One that can't is named and skipped; it is an error if no newer one than this was tried."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
FAST = ("crash", "ha", "browser", "plans", "types", "docs", "bench", "chaos", "roles", "fuzz")  # left out
# From 3.13 on a SQLite connection that is collected unclosed warns, some tests leave theirs to the collector, and a
# warning of the collector is an error of whichever test runs then.
OPTIONS = ("-W", "default::ResourceWarning", "-W", "default::pytest.PytestUnraisableExceptionWarning")


def main(versions: list[str]) -> int:
    failed, tried = [], []
    for version in versions or VERSIONS:
        python = next((found for found in candidates(version) if is_version(found, version)), None)
        if python is None:
            print(f"Python {version} is not here, and uv can't fetch it: skipped", flush=True)
            continue
        print(f"Python {version}: {python}", flush=True)
        tried.append(version)
        if not passes(python, version):
            failed.append(version)
    print(f"tried: {', '.join(tried) or 'none'}; failed: {', '.join(failed) or 'none'}")
    newer = [version for version in tried if tuple(map(int, version.split("."))) > sys.version_info[:2]]
    return 1 if failed or not newer else 0


def candidates(version: str) -> Iterator[str]:
    if found := shutil.which(f"python{version}"):
        yield found
    yield from map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), reverse=True))
    uv = [sys.executable, "-m", "uv", "python"]
    if run([*uv, "install", "--quiet", version]):
        yield subprocess.run([*uv, "find", version], capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603


def is_version(python: str, version: str) -> bool:
    """Does it start, and is it that one? (The `python3.13` of pyenv may only say that it is not set.)"""
    asked = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == version  # noqa: S603
    except OSError:
        return False


def passes(python: str, version: str) -> bool:
    place = ROOT / "build" / f"python-{version}"
    own = str(place / "bin" / "python")
    install = [own, "-m", "pip", "install", "--quiet", "-c", "constraints.txt"]
    left_out = [word for folder in FAST for word in ("--ignore", f"tests/{folder}")]
    return (
        run([python, "-m", "venv", str(place)])
        and run([*install, "--upgrade", "pip"])
        and run([*install, "--build-constraint", "constraints.txt", "--editable", ".", "--group", "test"])
        and run([own, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", *OPTIONS, *left_out])
    )


def run(command: list[str]) -> bool:
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0  # noqa: S603 - our own arguments, no shell


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
