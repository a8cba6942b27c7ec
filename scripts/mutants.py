"""`make mutants`: plants one bug after another and runs the test that must notice. A test proves something only if it
fails when what it is about is broken.

Each bug of `scripts/planted.py` is planted in a copy of the tree, on its own, and its tests run there. A bug that
survives, or whose line is no longer there, fails the run. If all are caught, docs/guarantees.md is written from them.
`python -m scripts.mutants WORD…` runs only the bugs whose file, sentence or tests contain one of the words.

With `--campaign` no tests run: each bug that can be seen from outside is put under fire by tests/chaos until the rule
named for it is broken."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from scripts import guarantees
from scripts.planted import BUGS, ROOT, SOURCE, Bug
from tests.chaos.campaign import AT_THE_END
from tests.servers import own_postgres

TREE = ("src", "tests", "scripts", "bench", "docs", "examples", "deploy", "pyproject.toml", "Makefile")
LONGEST = 420.0  # seconds for the tests of one bug, or its round of the campaign
FIRE = 3.6  # minutes of that round: 180 seconds under fire at most, half of it where only the end tells

CAUGHT, SURVIVED, HUNG, STALE, BROKEN = "caught", "SURVIVED", "HUNG", "NO LONGER APPLIES", "BROKE THE TEST RUN"


class Finding(NamedTuple):
    bug: Bug
    verdict: str
    seconds: float
    said: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="bugs planted at once")
    parser.add_argument("--campaign", action="store_true", help="put them under fire instead")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leave neither a server nor a copy behind
    bugs = [bug for bug in BUGS if not arguments.words or any(word in str(bug) for word in arguments.words)]
    with tempfile.TemporaryDirectory(prefix="mutants-") as place, ThreadPoolExecutor(arguments.jobs) as pool:
        if arguments.campaign:
            bugs = [bug for bug in bugs if bug.rule]
            findings = reported(pool.map(lambda n: plant(Path(place, str(n)), bugs[n], under_fire), range(len(bugs))))
        else:
            with own_postgres() as server:
                os.environ["HOLDFAST_TEST_POSTGRES_URL"] = server.url  # every test has a schema of its own in it
                if not tests_pass_unchanged(Path(place), bugs):
                    return 2
                findings = reported(pool.map(lambda n: plant(Path(place, str(n)), bugs[n], tested), range(len(bugs))))
    missed = [finding for finding in findings if finding.verdict != CAUGHT]
    print(f"{len(findings) - len(missed)} of {len(findings)} planted bugs were caught")
    for finding in missed:
        print(f"  {finding.verdict}: {finding.bug.breaks} ({', '.join(finding.bug.tests)})")
    if not missed and not arguments.words and not arguments.campaign:
        guarantees.main()  # the page says what was seen just now
    return 1 if missed else 0


def reported(findings: Iterable[Finding]) -> list[Finding]:
    told = []
    for finding in findings:
        told.append(finding)
        print(f"{finding.verdict:>8} {finding.seconds:5.1f} s  {finding.bug.breaks}", flush=True)
        if finding.verdict != CAUGHT:
            print(finding.said, flush=True)
    return told


def tests_pass_unchanged(place: Path, bugs: list[Bug]) -> bool:
    """A test that fails anyway would prove nothing."""
    tree = copied(place / "unchanged")
    ran = run_tests(tree, sorted({test for bug in bugs for test in bug.tests}), 4 * LONGEST)
    if ran.returncode:
        print(f"The named tests must pass before a bug is planted:\n{ran.stdout[-6000:]}")
    shutil.rmtree(tree)
    return ran.returncode == 0


def plant(place: Path, bug: Bug, look: Callable[[Path, Bug], tuple[str, str]]) -> Finding:
    began = time.monotonic()
    tree = copied(place)
    for file, old, new in bug.changes:
        path = tree / SOURCE / file
        text = path.read_text("utf-8")
        if text.count(old) != 1:
            return Finding(bug, STALE, 0.0)
        path.write_text(text.replace(old, new), "utf-8")
    try:
        found, said = look(tree, bug)
    except subprocess.TimeoutExpired:
        return Finding(bug, HUNG, time.monotonic() - began)
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    return Finding(bug, found, time.monotonic() - began, said[-3000:])


def tested(tree: Path, bug: Bug) -> tuple[str, str]:
    ran = run_tests(tree, bug.tests, LONGEST)
    return verdict(ran), ran.stdout


def under_fire(tree: Path, bug: Bug) -> tuple[str, str]:
    """The campaign is ours, the code that it puts under fire the copy."""
    minutes = FIRE / 2 if bug.rule in AT_THE_END else FIRE
    options = ["--minutes", str(minutes), "--engine", bug.engine, "--source", str(tree), "--until", bug.rule]
    options += ["--out", str(tree / "out"), "--faults", *bug.faults, *(["--tasks", *bug.tasks] if bug.tasks else [])]
    ran = run([sys.executable, "-m", "tests.chaos", *options], ROOT, LONGEST)
    if ran.returncode == 0:
        return SURVIVED, ran.stdout
    return CAUGHT if f"BROKEN {bug.rule}:" in ran.stdout else BROKEN, ran.stdout


def verdict(ran: subprocess.CompletedProcess[str]) -> str:
    """Only a test that ran and failed has caught something: not a fixture, not a module that can't be imported."""
    if ran.returncode == 0:
        return SURVIVED
    summary = ran.stdout.strip().rpartition("\n")[2]
    failed = re.search(r"\d+ failed", summary) and not re.search(r"\d+ error", summary)
    return CAUGHT if ran.returncode == 1 and failed else BROKEN


def copied(place: Path) -> Path:
    """With the compiled files: they are valid as long as times of change are kept."""
    for name in TREE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name)
        elif source.exists():
            shutil.copy2(source, place / name)
    return place


def run_tests(tree: Path, tests: list[str] | tuple[str, ...], timeout: float) -> subprocess.CompletedProcess[str]:
    """Everything that is imported, here and by processes that the tests start, is the copy."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", "--tb=short"]
    path = os.pathsep.join([str(tree / "src"), str(tree)])
    return run([*command, *(f"tests/{test}" for test in tests)], tree, timeout, PYTHONPATH=path)


def run(command: list[str], place: Path, timeout: float, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **more}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with subprocess.Popen(  # noqa: S603 - our own tests
        command, cwd=place, env=environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, said)


if __name__ == "__main__":
    sys.exit(main())
