"""The README's own example, copied out of it and run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_example_runs_as_it_stands(tmp_path: Path) -> None:
    [program] = blocks("python")
    assert program.startswith("# app.py\n")
    (tmp_path / "app.py").write_text(program)
    _, commands = blocks("sh")
    worker_line, python_line, list_line = commands.strip().splitlines()
    assert worker_line.split("#")[0].split() == ["holdfast", "worker", "app.py", "&"]
    assert python_line.split() == ["python", "app.py"]
    bin_directory = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": bin_directory + os.pathsep + os.environ["PATH"]}
    worker = subprocess.Popen(
        ["holdfast", "worker", "app.py"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
    )
    try:
        printed = subprocess.run(
            ["python", "app.py"], cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=60, check=True
        ).stdout
        assert printed == "{'url': 'https://example.org', 'score': 87} 87\n"
        listed = subprocess.run(
            list_line.split(), cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=60, check=True
        ).stdout
    finally:
        worker.terminate()
        worker.wait(30)
    assert [json.loads(line)["state"] for line in listed.splitlines()] == ["succeeded", "succeeded"]


def test_the_two_commands_come_first_and_exist() -> None:
    first = blocks("sh")[0]
    targets = re.findall(r"^make ([a-z-]+)", first, re.MULTILINE)
    assert targets == ["demo", "test"]
    makefile = README.with_name("Makefile").read_text()
    for target in [*targets, "help", "check", "test-fast", "bench", "bench-long"]:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
