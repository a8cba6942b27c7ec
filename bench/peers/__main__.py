"""`make bench-peers`: install, measure by turns, print who wins."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from bench.peers.contenders import CONTENDERS, OURS, POSTGRES, Contender
from bench.peers.databases import Server, SqliteDatabase
from bench.peers.install import CannotInstall, install
from bench.peers.rows import ROWS, Alone, Figures, Together
from bench.peers.run import ROOT, Bench, Run, RunFailed, stopping
from bench.peers.table import report
from bench.peers.verdict import BARS, judge

BEGAN = time.monotonic()


@dataclass
class Results:
    """What was found so far."""

    figures: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, contender: Contender, found: Figures) -> None:
        for metric, value in found.items():
            of_engine = self.figures.setdefault(contender.engine, {})
            of_engine.setdefault(metric, {}).setdefault(contender.name, []).append(value)
        said = "  ".join(f"{metric} {value:,.4g}" for metric, value in found.items())
        say(f"  {contender.engine} {contender.title}: {said}")

    def note(self, text: str) -> None:
        say(f"  {text}")
        self.notes.append(text)


def main() -> None:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that every child is ended on the way out
    results = Results()
    with ExitStack() as stack:
        home = Path(os.environ.get("HOLDFAST_BENCH_HOME") or ROOT / ".bench").resolve()
        bench, contenders = set_up(home, options.peers, results)
        say("starting PostgreSQL")
        server = Server()
        stack.callback(server.close)
        about = {"machine": machine(server), "settings": settings(options, contenders)}
        for repetition in range(options.reps):
            # Everybody goes first once in a while, so that nobody always meets a warm or a tired machine.
            turn = repetition % len(contenders)
            order = [*contenders[turn:], *contenders[:turn]]
            for row in options.rows:
                say(f"repetition {repetition + 1} of {options.reps}: {row}")
                measure(row, order, options.jobs, bench, server, results)
                if options.json and options.json != "-":
                    Path(options.json).write_text(document(about, results))
    print(document(about, results) if options.json == "-" else report(results.figures, results.notes))


def parse_options() -> argparse.Namespace:
    names = list(dict.fromkeys(contender.name for contender in CONTENDERS if not contender.ours))
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument(
        "--peers", type=_some_of(names), default=names, help=f"of {','.join(names)}; Holdfast always runs"
    )
    parser.add_argument("--rows", type=_some_of(list(ROWS)), default=list(ROWS), help=f"of {','.join(ROWS)}")
    parser.add_argument("--reps", type=int, default=3, help="repetitions; medians are shown (default: 3)")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs in a drain (default: 20000)")
    parser.add_argument(
        "--json", metavar="FILE", help="write a JSON document as well; -: to stdout, instead of the table"
    )
    return parser.parse_args()


def _some_of(known: Sequence[str]) -> Any:
    def chosen(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)}; there is {', '.join(known)}")
        return names

    return chosen


def set_up(home: Path, peers: Sequence[str], results: Results) -> tuple[Bench, list[Contender]]:
    commands = {}
    present = []
    for contender in CONTENDERS:
        if contender.name in (OURS, *peers):
            say(f"setting up {contender.title}")
            try:
                commands[contender.engine, contender.name] = install(contender, home)
                present.append(contender)
            except CannotInstall as error:
                results.note(f"{contender.title} is left out: {error}")
    engines = {contender.engine for contender in present if not contender.ours}
    home.mkdir(parents=True, exist_ok=True)
    return Bench(home, commands), [contender for contender in present if contender.engine in engines]


def measure(
    name: str, contenders: Sequence[Contender], jobs: int, bench: Bench, server: Server, results: Results
) -> None:
    match ROWS[name]:
        case Alone() as row:
            for contender in contenders:
                with noting(name, contender, results), running(bench, contender, server, row.tuning) as run:
                    results.add(contender, row.measure(run, jobs))
        case Together() as row:
            with ExitStack() as stack:
                runs = []
                for contender in contenders:
                    with noting(name, contender, results):
                        run = stack.enter_context(running(bench, contender, server, row.tuning))
                        row.begin(run)
                        runs.append(run)
                for run, found in zip(runs, row.measure(runs, server), strict=True):
                    results.add(run.contender, found)


@contextmanager
def running(bench: Bench, contender: Contender, server: Server, tuning: str) -> Iterator[Run]:
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="run-", dir=bench.home)))
        postgres = contender.engine == POSTGRES
        database = stack.enter_context(server.database()) if postgres else SqliteDatabase(place / "jobs.db")
        run = stack.enter_context(stopping(Run(bench, contender, database, place, tuning)))
        run.ask("prepare")
        yield run


@contextmanager
def noting(row: str, contender: Contender, results: Results) -> Iterator[None]:
    """One that fails leaves a gap and a note; the others go on."""
    try:
        yield
    except (RunFailed, psycopg.Error, sqlite3.Error) as error:
        results.note(f"{contender.title} on {contender.engine}, {row}: {error}")


def machine(server: Server) -> dict[str, Any]:
    return {
        "cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version(),
        "postgres": server.version, "sqlite": sqlite3.sqlite_version,
    }  # fmt: skip


def settings(options: argparse.Namespace, contenders: Sequence[Contender]) -> dict[str, Any]:
    return {
        "jobs": options.jobs,
        "repetitions": options.reps,
        "packages": {contender.name: contender.packages for contender in contenders if not contender.ours},
    }


def document(about: dict[str, Any], results: Results) -> str:
    bars = [judge(bar, results.figures) for bar in BARS]
    content = {
        **about,
        "figures": results.figures,
        "bars": [{**asdict(found.bar), "found": found.found, "reached": found.reached} for found in bars],
        "notes": results.notes,
    }
    return json.dumps(_finite(content), indent=1, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """JSON has no infinity: null stands for a figure that was not reached in the time given."""
    match value:
        case dict():
            return {name: _finite(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
        case float() if math.isinf(value):
            return None
        case _:
            return value


def say(text: str) -> None:
    elapsed = int(time.monotonic() - BEGAN)
    print(f"[{elapsed // 60:02}:{elapsed % 60:02}] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
