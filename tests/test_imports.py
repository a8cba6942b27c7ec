"""Imports point one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

SOURCE = Path(holdfast.__file__).parent
# part -> what it may import, besides itself. A part is a folder, or a file beside the folders.
MAY_IMPORT = {
    "durations": set[str](),
    "errors": {"durations"},
    "redact": set[str](),
    "harmless": set[str](),
    "events": {"errors", "harmless", "redact"},
    "model": {"durations", "errors", "harmless", "redact"},
    "settings": {"durations", "errors", "model", "redact"},
    "store": {"durations", "errors", "events", "model", "redact", "settings"},
    "tasks": {"durations", "errors", "events", "model", "redact", "settings", "store"},
    "runners": {"durations", "errors", "events", "model", "redact", "settings", "signals", "store", "tasks"},
    "worker": {
        "durations",
        "errors",
        "events",
        "model",
        "prometheus",
        "redact",
        "runners",
        "settings",
        "signals",
        "store",
        "tasks",
    },
    "job": {"durations", "errors", "model", "redact", "tasks", "waiters"},
    "doctor": {"durations", "errors", "model", "settings", "store", "tasks", "worker"},
    "waiters": {"durations", "errors", "events", "model", "store", "tasks"},
    "operations": {"durations", "doctor", "errors", "job", "model", "settings", "store", "tasks", "worker"},
    "pausing": {"durations", "errors", "job", "model", "operations", "tasks"},
    "api_keys": {"errors", "model", "tasks"},
    "monitoring": {"errors", "model", "prometheus", "store", "tasks"},
    "prometheus": {"model"},
    "run_now": {"errors", "events", "job", "tasks"},
    # It speaks the application's verbs and never SQL.
    "http": {
        "durations",
        "errors",
        "events",
        "harmless",
        "job",
        "model",
        "monitoring",
        "operations",
        "redact",
        "run_now",
        "tasks",
    },
    "adopting": {"durations", "errors", "events", "job", "model", "operations", "settings", "store", "tasks"},
    "app": {
        "adopting",
        "api_keys",
        "durations",
        "errors",
        "events",
        "http",
        "job",
        "model",
        "monitoring",
        "operations",
        "pausing",
        "run_now",
        "runners",
        "settings",
        "store",
        "tasks",
        "waiters",
        "worker",
    },
}  # everything else (the package itself, the command line, demo, bench, web) stands on top and may import all of it


@pytest.mark.parametrize("part", sorted(MAY_IMPORT))
def test_imports_point_one_way(part: str) -> None:
    target = SOURCE / part
    files = list(target.rglob("*.py")) if target.is_dir() else [target.with_suffix(".py")]
    found = {name for file in files for name in _parts_imported(ast.parse(file.read_text()))}
    assert files
    assert found - {part} <= MAY_IMPORT[part]


def _parts_imported(tree: ast.AST) -> set[str]:
    """What of ours is imported when the program runs; what is imported for its types alone closes no circle."""
    names = set[str]()
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.ImportFrom(module="holdfast", names=imported):
                names |= {alias.name for alias in imported}
            case ast.ImportFrom(module=str(module), level=0) if module.startswith("holdfast."):
                names.add(module.split(".")[1])
            case ast.ImportFrom(level=level) if level:
                raise AssertionError("imports are written in full, so that this test can read them")
            case ast.Import(names=imported):
                names |= {alias.name.split(".")[1] for alias in imported if alias.name.startswith("holdfast.")}
            case _:
                names |= _parts_imported(node)
    return names


def loaded_by(code: str) -> set[str]:
    """The modules of others that are there after this code."""
    code += "; import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(ran.stdout.split())
    assert "holdfast" in loaded
    return loaded


HEAVY = {"asyncio", "ssl", "subprocess", "sqlite3", "psycopg", "sqlalchemy", "http", "httpx", "zoneinfo", "cronsim"}
FOR_PEOPLE = {"rich", "click", "starlette", "uvicorn", "jinja2"}


def test_import_holdfast_brings_no_driver_and_nothing_for_terminals_or_the_web() -> None:
    assert not loaded_by("import holdfast") & (HEAVY | FOR_PEOPLE | {"tomllib", "difflib", "random", "shlex"})


def test_a_process_for_one_attempt_brings_no_database_and_no_event_loop() -> None:
    """It is waited for: each of these would be half as much again. A handler that is a coroutine brings its loop."""
    code = (
        "from holdfast import isolated_main, app_loader; "
        "from holdfast.runners import isolated_child, store_proxy, wire; import bench.isolated_app"
    )
    assert not loaded_by(code) & (HEAVY | FOR_PEOPLE | {"tempfile", "shutil"})


def test_the_command_line_brings_no_worker_to_say_how_it_is_used() -> None:
    code = "import holdfast.cli, sys; assert 'holdfast.worker.desk' not in sys.modules"
    assert not loaded_by(code) & (FOR_PEOPLE - {"click"} | {"psycopg", "asyncio"})
