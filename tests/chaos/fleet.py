"""The processes of a campaign: workers, started again when they end; producers; people. Starts and ends are logged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.kinds import KINDS
from tests.chaos.places import Place
from tests.chaos.writing import Log, lines

ROOT = Path(__file__).parents[2]
LEASE, GRACE = 3.0, 5.0  # seconds
LOOK = 0.25  # seconds between two looks for programs that outlive the process which started them
OUTLIVED = 2.0  # seconds after which such a program counts


@dataclass
class Member:
    """A process of the campaign."""

    name: str
    role: str
    process: subprocess.Popen[bytes]
    at_work: bool = False  # a worker that has registered
    asked: str = ""  # what was done to it last: "kill", "term"
    asked_at: float = 0.0
    frozen: bool = False


@dataclass
class Program:
    """A program that a handler started."""

    pid: int
    birth: str
    runner: int
    job: str
    orphan_since: float | None = None
    told: bool = False


@dataclass
class Runners:
    """The processes that run handlers, known by the lines these leave."""

    pooled: dict[int, float] = field(default_factory=dict)
    isolated: dict[int, float] = field(default_factory=dict)


class Fleet:
    def __init__(self, place: Place, home: Path, source: Path, seed: int, tasks: Sequence[str] = ()) -> None:
        self.place = place
        self.home = home
        self.seed = seed
        self.log = Log(home / "events.jsonl")
        self.lock = threading.RLock()
        self.members: list[Member] = []
        self.keep = True  # start again what has ended
        self.runners = Runners()
        self.programs: dict[int, Program] = {}
        self._started = 0
        self._read = 0
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTEST_"))}
        self.environment = {
            **clean, "PYTHONPATH": f"{source / 'src'}:{ROOT}", "CHAOS_HOME": str(home), "HOLDFAST_URL": place.url,
            "HOLDFAST_LEASE": str(LEASE), "HOLDFAST_GRACE": str(GRACE), "PYTHONFAULTHANDLER": "1", "TZ": "UTC",
            "CHAOS_TASKS": " ".join(tasks),
        }  # fmt: skip

    def run(self, *arguments: str, timeout: float = 120) -> None:
        command = [sys.executable, "-m", *arguments]
        done = subprocess.run(
            command, env=self.environment, cwd=self.home, capture_output=True, text=True, timeout=timeout
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}: {done.stdout}{done.stderr}")

    # -- start and end --------------------------------------------------------------------------------------------

    def start(self, role: str, slot: int) -> Member:
        with self.lock:
            self._started += 1
            name = f"{role[0]}{slot}.{self._started}"
            seed = str(self.seed * 1000 + self._started)
            command = {
                "worker": ["holdfast", "worker", str(ROOT / "tests" / "chaos" / "app.py"), "-v"],
                "producer": ["tests.chaos.producer", name, seed],
                "people": ["tests.chaos.people", name, seed],
            }[role]
            with (self.home / f"{role}-{name}.log").open("wb") as output:
                process = subprocess.Popen(
                    [sys.executable, "-m", *command], cwd=self.home, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=output, env={**self.environment, "HOLDFAST_WORKER_NAME": name},
                )  # fmt: skip
            member = Member(name, role, process)
            self.members.append(member)
            self.log.write(what="started", role=role, name=name, pid=process.pid)
            return member

    def tend(self) -> None:
        """Log what has ended, and start it again."""
        with self.lock:
            for member in list(self.members):
                status = member.process.poll()
                if status is None:
                    continue
                self.members.remove(member)
                self.log.write(
                    what="ended", role=member.role, name=member.name, status=status, asked=member.asked,
                    asked_at=member.asked_at,
                )  # fmt: skip
                if self.keep:
                    self.start(member.role, int(member.name[1:].partition(".")[0]))

    def greet(self, names: set[str]) -> None:
        """These workers have registered."""
        with self.lock:
            for member in self.members:
                if member.name in names and not member.at_work:
                    member.at_work = True
                    self.log.write(what="at work", name=member.name)

    def of(self, role: str) -> list[Member]:
        with self.lock:
            return [member for member in self.members if member.role == role]

    def signal(self, member: Member, number: int, asked: str = "") -> None:
        with self.lock:
            if asked and not (member.asked == "term" and asked == "term"):
                member.asked, member.asked_at = asked, time.time()
            with suppress(ProcessLookupError):
                member.process.send_signal(number)

    def stop(self, role: str, timeout: float) -> None:
        """SIGTERM to all of them; who does not end in time is killed, and that is logged."""
        with self.lock:
            members = self.of(role)
            for member in members:
                self.signal(member, signal.SIGTERM, "term")
        deadline = time.monotonic() + timeout
        while any(m.process.poll() is None for m in members) and time.monotonic() < deadline:
            time.sleep(0.05)
        for member in members:
            if member.process.poll() is None:
                self.log.write(what="would not end", role=role, name=member.name, seconds=timeout)
                with suppress(ProcessLookupError):
                    member.process.send_signal(signal.SIGABRT)  # its stacks go to its log
                time.sleep(0.5)
                member.process.kill()
                member.process.wait()
        self.tend()

    def close(self) -> None:
        self.keep = False
        for member in self.members:
            with suppress(ProcessLookupError):
                member.process.kill()
            member.process.wait()

    # -- what can be seen of them ---------------------------------------------------------------------------------

    def look(self) -> None:
        """Read what handlers have told since: which processes run them, which programs they started. A program that
        lives on after the process that started it is told of."""
        for line, self._read in lines(self.home / "effects.jsonl", self._read):  # noqa: B020 - the place in the file
            if line["what"] == "begin":
                kind = KINDS.get(line["task"])
                seen = self.runners.isolated if kind and kind.isolated else self.runners.pooled
                seen[line["pid"]] = line["at"]
            elif line["what"] == "program":
                birth = birth_of(line["program"])
                if birth:
                    self.programs[line["program"]] = Program(line["program"], birth, line["pid"], line["job"])
        now = time.time()
        for program in list(self.programs.values()):
            if birth_of(program.pid) != program.birth:
                del self.programs[program.pid]
            elif birth_of(program.runner):
                program.orphan_since = None
            elif program.orphan_since is None:
                program.orphan_since = now
            elif now - program.orphan_since > OUTLIVED and not program.told:
                program.told = True
                self.log.write(what="outlived", program=program.pid, runner=program.runner, job=program.job)

    def alive(self, seen: dict[int, float]) -> list[int]:
        for pid in [pid for pid in seen if not birth_of(pid)]:
            del seen[pid]
        return list(seen)

    def left(self) -> list[int]:
        """Processes of this campaign that live, besides those we have started ourselves."""
        mark = f"CHAOS_HOME={self.home}".encode()
        found = []
        for place in Path("/proc").iterdir():
            if place.name.isdigit() and int(place.name) != os.getpid() and birth_of(int(place.name)):
                with suppress(OSError):
                    if mark in (place / "environ").read_bytes().split(b"\0"):
                        found.append(int(place.name))
        return found


def birth_of(pid: int) -> str:
    """When a live process was started; "" if there is none, or it is dead and not reaped yet."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (thread / "children").read_text().split()]
    return found
