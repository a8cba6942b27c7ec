"""`make audit`: licences of what we need, and whether vulnerabilities are known of what is installed here.

pip-audit skips a package that it can't ask about, and then finds nothing wrong. Here an answer counts only if there is
one for every package: 0 is "nothing is known", 1 "something is", 2 "could not audit"."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import tempfile
from typing import Any

from packaging.utils import canonicalize_name

from scripts.sbom import OURS, licence_of, needed

CLEAN, VULNERABLE, UNKNOWN = 0, 1, 2
LONGEST = 300.0  # seconds

Packages = dict[str, str]  # names and versions


def installed() -> Packages:
    """All but ourselves."""
    found = {canonicalize_name(each.name): each.version for each in importlib.metadata.distributions()}
    return {name: version for name, version in sorted(found.items()) if name != "holdfast"}


def main() -> int:
    licences()
    packages = installed()
    code, sentence = verdict(packages, *ask(packages))
    print(sentence)
    return code


def licences() -> None:
    print(f"Licences of what {OURS} needs:")
    for name in sorted(needed()):
        print(f"  {name} {importlib.metadata.version(name)}: {licence_of(name)}")


def ask(packages: Packages) -> tuple[str, str]:
    """What pip-audit says of these, and what it complains about."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.write("".join(f"{name}=={version}\n" for name, version in packages.items()))
        listed.flush()
        try:
            done = subprocess.run(  # noqa: S603 - our own arguments, no shell
                [
                    sys.executable, "-m", "pip_audit", "--strict", "--no-deps", "--disable-pip", "--format", "json",
                    "--progress-spinner", "off", "-r", listed.name,
                ],
                capture_output=True, text=True, timeout=LONGEST, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "", f"no answer within {LONGEST:g} s"
    return done.stdout, done.stderr


def verdict(packages: Packages, said: str, complaint: str = "") -> tuple[int, str]:
    try:
        answers: list[dict[str, Any]] = json.loads(said)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = complaint.strip().rpartition("\n")[2].removeprefix("ERROR:pip_audit._cli:")
        return UNKNOWN, f"Could not audit: {last or 'pip-audit did not answer'}"
    known = [
        f"{one['name']} {one['version']}: {bug['id']}, fixed in {', '.join(bug['fix_versions']) or 'no version'}"
        for one in answers
        for bug in one.get("vulns", ())
    ]
    answered = {(canonicalize_name(one["name"]), one["version"]) for one in answers if "vulns" in one}
    missing = [name for name, version in packages.items() if (name, version) not in answered]
    lines = [f"Known vulnerabilities: {len(known)}", *known] if known else []
    if missing or not packages:
        lines.append(f"Could not audit {len(missing)} of {len(packages)} packages: {', '.join(missing)}")
    if known:
        return VULNERABLE, "\n".join(lines)
    if lines:
        return UNKNOWN, lines[0]
    return CLEAN, f"No vulnerability is known of any of the {len(packages)} packages installed here"


if __name__ == "__main__":
    sys.exit(main())
