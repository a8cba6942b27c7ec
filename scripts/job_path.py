"""`python -m scripts.job_path`: which of our files one job passes, measured. With `--write` the list goes into
docs/how-it-works.md.

A plain `holdfast worker` and a producer warm up with a few jobs. Then single jobs are traced, from the call of
`enqueue` to the recorded outcome: every function of ours that runs meanwhile, in any process, and every SQL statement.
A last job is traced from the death of its worker to its second run by another one. What shows up in every round is on
the path; anything else happened to run beside it (a heartbeat, a regular look for work).

Structs are made in C, so a module that only declares values does not show up here."""

from __future__ import annotations

import argparse
import ast
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import psycopg

from bench.embedded import EmbeddedPostgres
from scripts.generated import fill_in

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "holdfast"
PAGE = ROOT / "docs" / "how-it-works.md"
ENGINES = ("sqlite", "postgres")
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
WARM_UP, ROUNDS = 3, 8
PATIENCE = 60.0  # seconds until something must have happened
IDLE = 0.3  # seconds after which a worker has looked everywhere and sleeps
TRANSACTION = ("begin", "begin immediate", "commit", "pragma data_version")
LAST = "succeed"  # the statement that records what these jobs lead to
ALIKE = 0.8  # of a statement's text that must be found in what the database got

# Every Python process with this directory on its path imports this first. While the shared byte is not 0, it notes each
# function of ours when it first runs, and each statement that SQLite gets.
TRACER = """
import mmap, os, sqlite3, sys, threading, time

directory, source = os.environ["TRACE_DIRECTORY"], os.environ["TRACE_SOURCE"] + os.sep
with open(os.path.join(directory, "round"), "r+b") as shared:
    current = mmap.mmap(shared.fileno(), 1)
notes = os.open(os.path.join(directory, f"notes.{os.getpid()}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
seen = set()

def note(kind, what):
    number = current[0]
    if number and (number, kind, what) not in seen:
        seen.add((number, kind, what))
        os.write(notes, repr((number, time.monotonic_ns(), kind, what)).encode() + b"\\n")

def called(frame, event, argument):
    if event == "call" and current[0]:
        file = frame.f_code.co_filename
        if file.startswith(source):
            note("python", file[len(source):] + ":" + frame.f_code.co_name)

class Traced(sqlite3.Connection):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.set_trace_callback(lambda text: note("sql", text))

connect = sqlite3.connect
sqlite3.connect = lambda *arguments, **options: connect(*arguments, **{"factory": Traced, **options})
threading.setprofile(called)
sys.setprofile(called)
"""

APP = """
import os, time
from holdfast import Holdfast

hf = Holdfast()

@hf.task(name="quick")
async def quick(argument: str) -> None:
    pass

@hf.task(name="stuck")
def stuck(argument: str) -> None:
    if not os.path.exists(argument):
        open(argument, "x").close()
        time.sleep(600)
"""

# Enqueues a job for each line it reads.
PRODUCER = """
import sys
from app import hf, quick, stuck
for line in sys.stdin:
    task, argument = line.split()
    {"quick": quick, "stuck": stuck}[task].enqueue(argument)
"""


class Note(NamedTuple):
    round: int
    at: int
    kind: str
    what: str


class Statement(NamedTuple):
    """An SQL statement of ours, or a fragment that others include: the texts between its placeholders."""

    name: str
    file: str
    pieces: tuple[str, ...]
    includes: frozenset[str]

    def found_in(self, text: str) -> float:
        """How much of it this text contains, in order; 1 is all of it."""
        at = found = 0
        for piece in self.pieces:
            if (where := text.find(piece, at)) >= 0:
                at = where + len(piece)
                found += len(piece)
        return found / max(1, self.length)

    @property
    def length(self) -> int:
        return sum(map(len, self.pieces))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--write", action="store_true", help="put the list into docs/how-it-works.md")
    arguments = parser.parse_args()
    paths = {}
    for engine in ENGINES if arguments.write else arguments.engine or ENGINES:
        paths[engine], rescue = traced(engine)
        print(described(engine, "from enqueue to the recorded outcome", paths[engine]))
        print(described(engine, "from a worker's death to the recorded outcome of its job", rescue))
    if arguments.write:
        PAGE.write_text(fill_in(PAGE.read_text(), "job-path", listed(paths)))


def listed(paths: dict[str, list[Note]]) -> str:
    """The files of these paths, each with what it says about itself."""
    python = {engine: list(python_files(notes)) for engine, notes in paths.items()}
    sql = {engine: list(sql_files(engine, notes)) for engine, notes in paths.items()}
    counts = [f"{len(python[engine])} Python and {len(sql[engine])} SQL files on {NAMES[engine]}" for engine in paths]
    rows = [f"Measured: {', '.join(counts)}.", "", "| file | on | what it does |", "|---|---|---|"]
    for files in (python, sql):
        for file in dict.fromkeys(file for engine in reversed(paths) for file in files[engine]):
            engines = [NAMES[engine] for engine in paths if file in files[engine]]
            rows.append(f"| `{file}` | {'both' if len(engines) > 1 else engines[0]} | {summary(SOURCE / file)} |")
    return "\n".join(rows)


def summary(file: Path) -> str:
    """The first sentence of a module's docstring, or of the comment that opens an SQL file."""
    text = file.read_text("utf-8")
    if file.suffix == ".sql":
        about = " ".join(line.removeprefix("--").strip() for line in takewhile(is_comment, text.splitlines()))
    else:
        about = " ".join((ast.get_docstring(ast.parse(text)) or "").split())
    return re.split(r"(?<=[.?])\s", about, maxsplit=1)[0].replace("|", "\\|")


def is_comment(line: str) -> bool:
    return line.startswith("--")


def described(engine: str, what: str, notes: list[Note]) -> str:
    files, statements = python_files(notes), sql_files(engine, notes)
    lines = [f"\n{engine}, {what}: {len(files)} Python files, {len(statements)} SQL files"]
    lines += [f"  {file}: {len(functions)} functions" for file, functions in files.items()]
    lines += [f"  {file}: {', '.join(names)}" for file, names in statements.items()]
    lines += [f"  made in code: {text[:60]}…" for text in made_in_code(engine, notes)]
    return "\n".join(lines)


def python_files(notes: list[Note]) -> dict[str, list[str]]:
    """Which functions of which file."""
    found: dict[str, list[str]] = {}
    for note in notes:
        if note.kind == "python":
            file, _, function = note.what.partition(":")
            found.setdefault(file, []).append(function)
    return found


def sql_files(engine: str, notes: list[Note]) -> dict[str, list[str]]:
    """Which statements of which file, fragments included, until the outcome is recorded."""
    known = statements_of(engine)
    found: dict[str, list[str]] = {}
    for text in [plain(note.what) for note in notes if note.kind == "sql"]:
        statements = recognised(text, known)
        for statement in statements:
            names = found.setdefault(statement.file, [])
            names += [] if statement.name in names else [statement.name]
        if any(statement.name == LAST for statement in statements):
            break
    return found


def made_in_code(engine: str, notes: list[Note]) -> list[str]:
    """Statements that stand in no file."""
    known = statements_of(engine)
    texts = [plain(note.what) for note in notes if note.kind == "sql"]
    return [text for text in texts if text.lower() not in TRANSACTION and not recognised(text, known)]


# -- what ran ----------------------------------------------------------------------------------------------------------


def traced(engine: str) -> tuple[list[Note], list[Note]]:
    """What a job passes, and what a rescue passes, each in the order in which it first ran."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="job-path-")))
        database: Sqlite | Postgres = Sqlite(directory) if engine == "sqlite" else Postgres()
        stack.callback(database.close)
        rig = Rig(directory, database)
        with rig.worker(), rig.producer() as produce:
            for number in range(1 - WARM_UP, ROUNDS + 1):
                time.sleep(IDLE)
                with rig.round(max(0, number)):
                    produce("quick", "x")
                    rig.wait_until(lambda: not database.unfinished())
        with rig.producer() as produce, rig.worker() as first:
            marker = directory / "started"
            produce("stuck", str(marker))
            rig.wait_until(marker.exists)
            with rig.worker():
                time.sleep(IDLE)
                with rig.round(ROUNDS + 1):
                    first.send_signal(signal.SIGKILL)
                    rig.wait_until(lambda: not database.unfinished())
        notes = rig.notes()
    return in_all(notes, range(1, ROUNDS + 1)), in_all(notes, range(ROUNDS + 1, ROUNDS + 2))


def in_all(notes: list[Note], rounds: range) -> list[Note]:
    """What was noted in every one of these rounds, in the order of the first."""
    marks = [{(note.kind, skeleton(note)) for note in notes if note.round == number} for number in rounds]
    found: dict[tuple[str, str], Note] = {}
    for note in notes:
        if note.round == rounds[0] and (note.kind, skeleton(note)) in set.intersection(*marks):
            found.setdefault((note.kind, skeleton(note)), note)
    return list(found.values())


def skeleton(note: Note) -> str:
    """A statement without its values: SQLite's trace has them filled in."""
    return note.what if note.kind == "python" else re.sub(r"'[^']*'|\b\d[\w.]*", "?", note.what)


class Rig:
    """A directory that traced processes leave their notes in, and the processes."""

    def __init__(self, directory: Path, database: Sqlite | Postgres) -> None:
        self._directory = directory
        self._database = database
        self._statements: list[Note] = []
        (directory / "round").write_bytes(b"\0")
        (directory / "sitecustomize.py").write_text(TRACER)
        (directory / "app.py").write_text(APP)
        self._environment = {
            **os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{ROOT / 'src'}", "HOLDFAST_URL": database.url,
            "TRACE_DIRECTORY": str(directory), "TRACE_SOURCE": str(SOURCE),
        }  # fmt: skip
        self._run("-m", "holdfast", "migrate").wait(PATIENCE)

    def _run(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        command = [sys.executable, *arguments]
        return subprocess.Popen(  # noqa: S603 - our own programs
            command, cwd=self._directory, env=self._environment, stdin=stdin, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[str]]:
        known = self._database.workers()
        process = self._run("-m", "holdfast", "worker", "app.py")
        try:
            self.wait_until(lambda: self._database.workers() > known)
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE)

    @contextmanager
    def producer(self) -> Iterator[Callable[[str, str], None]]:
        process = self._run("-c", PRODUCER, stdin=subprocess.PIPE)
        assert process.stdin is not None
        lines = process.stdin

        def produce(task: str, argument: str) -> None:
            before = self._database.jobs()
            lines.write(f"{task} {argument}\n")
            lines.flush()
            self.wait_until(lambda: self._database.jobs() > before)

        try:
            yield produce
        finally:
            lines.close()
            process.wait(PATIENCE)

    @contextmanager
    def round(self, number: int) -> Iterator[None]:
        """What runs in this block belongs to this round; to none if that is 0."""
        with open(self._directory / "round", "r+b", buffering=0) as shared:
            before = self._database.logged()
            shared.write(bytes([number]))
            try:
                yield
            finally:
                shared.seek(0)
                shared.write(b"\0")
        self._statements += [Note(number, at, "sql", text) for at, text in before()]

    def notes(self) -> list[Note]:
        files = self._directory.glob("notes.*")
        found = [Note(*ast.literal_eval(line)) for file in files for line in file.read_text().splitlines()]
        return sorted(found + self._statements, key=lambda note: note.at)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > until:
                raise TimeoutError("the job did not get there")
            time.sleep(0.005)


# -- the databases, past Holdfast --------------------------------------------------------------------------------------


class Sqlite:
    def __init__(self, directory: Path) -> None:
        self._path = directory / "jobs.db"
        self.url = f"sqlite:///{self._path}"

    def _count(self, what: str) -> int:
        db = sqlite3.connect(self._path)
        try:
            return int(db.execute(f"select count(*) from {what}").fetchone()[0])  # noqa: S608 - our own words
        finally:
            db.close()

    def jobs(self) -> int:
        return self._count("holdfast_jobs")

    def unfinished(self) -> int:
        return self._count("holdfast_jobs where finished_at is null")

    def workers(self) -> int:
        return self._count("holdfast_workers")

    def logged(self) -> Callable[[], list[tuple[int, str]]]:
        return lambda: []  # the processes note their statements themselves

    def close(self) -> None:
        return


class Postgres:
    def __init__(self) -> None:
        self._server = EmbeddedPostgres(log_statement="all", log_line_prefix="\x02%a\x03", fsync="off")
        self.url = self._server.url
        self._db = psycopg.connect(self.url, autocommit=True, application_name="watching")

    def _count(self, what: str) -> int:
        row = self._db.execute(f"select count(*) from holdfast.{what}".encode()).fetchone()  # noqa: S608
        assert row is not None
        return int(row[0])

    def jobs(self) -> int:
        return self._count("jobs")

    def unfinished(self) -> int:
        return self._count("jobs where finished_at is null")

    def workers(self) -> int:
        return self._count("workers")

    def _log(self, after: int = 0) -> str:
        row = self._db.execute("select pg_read_file('log', %s, 100000000)", [after]).fetchone()
        assert row is not None
        return str(row[0])

    def logged(self) -> Callable[[], list[tuple[int, str]]]:
        """Returns what gives the statements that the server got from now on, except ours."""
        length = len(self._log().encode())
        at = time.monotonic_ns()
        return lambda: [
            (at, text)
            for by, _, entry in (part.partition("\x03") for part in self._log(length).split("\x02"))
            if by != "watching" and (text := re.sub(r"^LOG:\s+(execute [^:]*|statement): ", "", entry)) != entry
        ]

    def close(self) -> None:
        self._db.close()
        self._server.destroy()


# -- whose statements these are ----------------------------------------------------------------------------------------


def statements_of(engine: str) -> list[Statement]:
    """Every statement of this engine's files; a file may hold several, each behind a line `-- name: …`."""
    found = []
    for file in [*(SOURCE / "store" / "sql").glob("*.sql"), *(SOURCE / "store" / engine).glob("*.sql")]:
        parts = re.split(r"^-- name: (\w+).*\n", "\n" + file.read_text("utf-8"), flags=re.MULTILINE)
        named = list(zip(parts[1::2], parts[2::2], strict=True)) or [(file.stem, parts[0])]
        for name, text in named:
            pieces = re.split(r"@\w+(?:\([^)]*\))?|(?<![:\w]):[a-z]\w*|%", plain(text).rstrip("; "))
            includes = frozenset(re.findall(r"@(\w+)", text))
            kept = tuple(piece for piece in map(str.strip, pieces) if piece)
            found.append(Statement(name, str(file.relative_to(SOURCE)), kept, includes))
    return found


def recognised(text: str, known: list[Statement]) -> list[Statement]:
    """The statement that this text was made of, with its fragments. (A table may have the name of a fragment.)"""
    alike = [statement for statement in known if statement.length > 10 and statement.found_in(text) >= ALIKE]
    if not alike:
        return []
    included = {name for statement in alike for name in statement.includes}
    best = max(alike, key=lambda statement: (statement.name not in included, statement.length))
    found, left = [best], set(best.includes)
    while fragments := [s for s in alike if s.name in left and s not in found]:
        found += fragments
        left = {name for fragment in fragments for name in fragment.includes}
    return found


def plain(text: str) -> str:
    """Without comments, and with one space where there is any."""
    return re.sub(r"\s+", " ", re.sub(r"--.*", "", text)).strip()


if __name__ == "__main__":
    main()
