"""Writes the table of settings of docs/operating.md from settings.py.
`python -m scripts.settings` after a change; a test compares."""

from __future__ import annotations

import ast
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

from holdfast import settings
from scripts.generated import fill_in

PAGE = Path(__file__).parents[1] / "docs" / "operating.md"
UNSHOWN = {"heartbeat", "threads", "queues"}  # nothing is set by default; their text says what that means


def table() -> str:
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    meanings = _meanings()
    for field in fields(settings.Settings):
        default = "" if field.name in UNSHOWN or field.default == "" else f"`{_shown(field.default)}`"
        rows.append(f"| `{field.name}` | {default} | {meanings[field.name]} |")
    return "\n".join(rows)


def _shown(value: object) -> str:
    return (
        f"{value:.10g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
    )


def _meanings() -> dict[str, str]:
    """The text that stands beneath each setting."""
    tree = ast.parse(Path(settings.__file__).read_text())
    [body] = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings"]
    found: dict[str, str] = {}
    for statement, text in pairwise(body):
        match statement, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(meaning))):
                found[name] = meaning.replace("\n    ", " ")
    return found


def main() -> None:
    PAGE.write_text(fill_in(PAGE.read_text(), "settings", table()))


if __name__ == "__main__":
    main()
