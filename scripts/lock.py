"""`make lock`: writes constraints.txt. uv resolves for every Python and platform at once; pip knows this one only."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
HEAD = "# Made by `make lock`: the versions that `make` installs.\n"


def main() -> int:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [word for name in project["dependency-groups"] for word in ("--group", f"pyproject.toml:{name}")]
    oldest = project["project"]["requires-python"].removeprefix(">=")
    with tempfile.TemporaryDirectory() as place:
        found = Path(place) / "constraints.txt"
        done = subprocess.run(  # noqa: S603 - our own arguments, no shell
            [
                sys.executable, "-m", "uv", "pip", "compile", "-", "--quiet", "--universal", "--python-version", oldest,
                "--system-certs", *groups, "--no-emit-package", project["project"]["name"], "--no-emit-index-url",
                "--no-emit-find-links", "--no-annotate", "--no-header", "--output-file", str(found),
            ],
            # Ourselves from here: groups name us, and a package of that name elsewhere would not be us.
            input=".[all]", text=True, cwd=ROOT, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            CONSTRAINTS.write_text(HEAD + found.read_text())
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
