"""`make sbom`: what comes along with the wheel and its extra `all`, as CycloneDX JSON, told from what is installed.
The same versions give the same file: it has no time and no number of its own."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OURS = "holdfast[all]"
CLASSIFIER = "License :: OSI Approved :: "

Needs = dict[str, set[str]]  # a package and those it needs


def needed(wanted: str = OURS) -> Needs:
    """Everything that is installed with this, itself included, on this Python and platform."""
    found: Needs = {}
    seen = set()
    line = [Requirement(wanted)]
    while line:
        requirement = line.pop()
        key = requirement.name, frozenset(requirement.extras)
        if key in seen:
            continue
        seen.add(key)
        name = canonicalize_name(requirement.name)
        further = list(_needs_of(requirement))
        found.setdefault(name, set()).update(canonicalize_name(each.name) for each in further)
        found[name].discard(name)  # an extra that names another
        line += further
    return found


def _needs_of(requirement: Requirement) -> Iterator[Requirement]:
    extras = ("", *requirement.extras)
    for needed in map(Requirement, importlib.metadata.requires(requirement.name) or ()):
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
            yield needed


def licence_of(name: str) -> str:
    """As the package states it, in its own words if it must be."""
    about = importlib.metadata.metadata(name).json
    named = [line.removeprefix(CLASSIFIER) for line in about.get("classifier", ()) if line.startswith(CLASSIFIER)]
    stated = about.get("license_expression") or " and ".join(named) or about.get("license") or "not stated"
    return str(stated).strip().partition("\n")[0]


def document(needs: Needs) -> dict[str, Any]:
    us = canonicalize_name(Requirement(OURS).name)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component(us)},
        "components": [_component(name) for name in sorted(needs) if name != us],
        "dependencies": [
            {"ref": _address(name), "dependsOn": sorted(map(_address, needs[name]))} for name in sorted(needs)
        ],
    }


def _component(name: str) -> dict[str, Any]:
    return {
        "type": "library", "bom-ref": _address(name), "name": name, "version": importlib.metadata.version(name),
        "purl": _address(name), "licenses": [_licence(name)],
    }  # fmt: skip


def _licence(name: str) -> dict[str, Any]:
    expression = importlib.metadata.metadata(name).json.get("license_expression")
    return {"expression": str(expression)} if expression else {"license": {"name": licence_of(name)}}


def _address(name: str) -> str:
    return f"pkg:pypi/{name}@{importlib.metadata.version(name)}"


def check(text: str) -> None:
    """By the schema, or an error that says where."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if wrong is not None:
        raise ValueError(f"this is no CycloneDX document: {wrong}")


def main(path: Path) -> int:
    bom = document(needed())
    text = json.dumps(bom, indent=2) + "\n"
    check(text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(f"{path}: {len(bom['components'])} packages come along with {OURS}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
