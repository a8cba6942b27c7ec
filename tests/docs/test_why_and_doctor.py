"""The pages on why and the doctor: complete, and run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.doctor import CODES
from holdfast.model.why import MEANINGS, Why

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def rows(page: str) -> list[list[str]]:
    lines = re.findall(r"^\| `.*\|$", (DOCS / page).read_text(), re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_reason_is_listed_with_its_meaning() -> None:
    assert [(row[0].strip("` "), row[2]) for row in rows("why.md")] == [(why.value, MEANINGS[why]) for why in Why]


def test_every_code_of_the_doctor_is_listed_with_its_meaning_and_fix() -> None:
    listed = {row[0].strip("` "): (row[3], row[4]) for row in rows("doctor.md")}
    assert listed == {code: (entry.meaning, entry.fix) for code, entry in CODES.items()}


@pytest.mark.parametrize(("page", "first"), [("why.md", "python"), ("doctor.md", "sh")])
def test_every_snippet_runs(page: str, first: str, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
    environment["PATH"] = str(Path(sys.executable).parent) + os.pathsep + environment["PATH"]
    printed = ""
    [program], [commands] = blocks(page, "python"), blocks(page, "sh")
    (tmp_path / "page.py").write_text(program)
    python = [f"{sys.executable} page.py"]
    shell = commands.strip().splitlines()
    for command in python + shell if first == "python" else shell + python:
        done = subprocess.run(
            command.split(), cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 0, (command, done.stderr)
        printed += done.stdout
    if page == "why.md":
        [shown] = blocks(page, "text")
        assert timeless(shown) in timeless(printed)


def timeless(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "T", text)
