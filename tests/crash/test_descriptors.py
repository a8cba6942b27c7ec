"""What handlers and onlookers can reach of a worker's: no descriptor but the line to it and what handlers write to, no
password in any command line. Workers as people start them, in default mode."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.cli.shell import Shell, wait_until
from tests.crash.conftest import Start
from tests.crash.fleet import children_of, is_locked, reaper_of
from tests.factories import a_queued_job

DEAD = ("first~0123456789ab", "second~0123456789ab")
APP = """
import fcntl, json, os, time
from pathlib import Path
from holdfast import Holdfast

hf = Holdfast()

def descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/fd")]

def stay(until: str, mark: str) -> None:
    Path(f"{until}-{mark}").touch()
    while not Path(until).exists():
        time.sleep(0.02)

def unlock(until: str, mark: str) -> None:
    for descriptor in descriptors():
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        except OSError:
            pass
    stay(until, mark)

def close(until: str, mark: str) -> None:
    os.closerange(0, 1000)
    stay(until, mark)

def tell(until: str, mark: str) -> None:
    found = {}
    for descriptor in descriptors():
        try:
            found[descriptor] = [os.readlink(f"/proc/self/fd/{descriptor}"), *os.fstat(descriptor)[1:3]]
        except OSError:  # the listing itself
            pass
    Path(f"{until}-{mark}.new").write_text(json.dumps(found))
    os.rename(f"{until}-{mark}.new", f"{until}-{mark}.json")
    stay(until, mark)

for act in (unlock, close, tell):
    hf.task(name=f"{act.__name__}_isolated", isolation="process", max_attempts=1)(act)
    hf.task(name=f"{act.__name__}_pooled", max_attempts=1)(act)
"""


@pytest.fixture
def shell(tmp_path: Path, settings: Settings) -> Shell:
    (tmp_path / "run").mkdir()
    shell = Shell(tmp_path, settings, APP)
    shell.environment |= {"XDG_RUNTIME_DIR": str(tmp_path / "run"), "HOLDFAST_HOST": "here"}
    return shell


def enqueue(kept: Store, act: str, until: Path) -> list[str]:
    """In a process of its own, and in one that handlers share."""
    ids = []
    for how in ("isolated", "pooled"):
        args = msgspec.json.encode({"until": str(until), "mark": how})
        ids.append(a_queued_job(kept, task=f"{act}_{how}", args=args, max_attempts=1))
    return ids


def await_both(until: Path) -> None:
    wait_until(lambda: all(Path(f"{until}-{how}").exists() for how in ("isolated", "pooled")), "both run")


def await_state(kept: Store, ids: list[str], state: State) -> None:
    wait_until(lambda: all(kept.reads.get(id).state is state for id in ids), f"{ids} to be {state}")


def place_of(kept: Store, home: Path) -> Path:
    path = getattr(kept.db, "path", None)
    if path is not None:
        return Path(f"{path}-workers") / "here"
    return home / "run" / f"holdfast-{os.getuid()}" / kept.schema.store_id / "here"


def test_no_handler_can_make_its_worker_look_dead(kept: Store, worker: Start, tmp_path: Path) -> None:
    """Whoever has a copy of the descriptor that is locked can unlock it for all. So a handler must not."""
    go = tmp_path / "go"
    place = place_of(kept, tmp_path)
    worker()
    ids = enqueue(kept, "unlock", go)
    await_both(go)
    [name] = [path.name for path in place.iterdir()]
    assert is_locked(place / name)
    neighbour = worker()
    wait_until(lambda: len(list(place.iterdir())) == 2, "the neighbour is there")
    for dead in DEAD:  # once the second is gone, the neighbour has looked at everybody
        (place / dead).touch()
        wait_until(lambda: not any((place / dead).exists() for dead in DEAD), "the neighbour has looked around")
    assert {kept.reads.get(id).worker for id in ids} == {name}
    go.touch()
    await_state(kept, ids, State.SUCCEEDED)
    assert [kept.reads.attempts(id) for id in ids][1] == [], "nobody else had it"
    closed = tmp_path / "closed"
    ids = enqueue(kept, "close", closed)
    await_state(kept, ids[1:], State.FAILED)  # without its line, its worker has ended its process
    assert is_locked(place / name)
    closed.touch()
    await_state(kept, ids[:1], State.FAILED)
    neighbour.terminate()
    _, log = neighbour.communicate(timeout=60)
    assert name not in log


def test_a_handler_shares_no_descriptor_with_its_worker_but_what_it_writes_to(
    kept: Store, worker: Start, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    process = worker()
    ids = enqueue(kept, "tell", go)
    await_both(go)
    worker_has = {(found.st_ino, found.st_dev) for found in files_of(process.pid)}
    go.touch()
    await_state(kept, ids, State.SUCCEEDED)

    isolated = told(go, "isolated")
    assert [kind for kind, _ in isolated] == ["/dev/null", "pipe", "pipe", "socket"], "its output, and its line"

    own = str(getattr(kept.db, "path", "a server"))  # it has connections of its own to the database
    pooled = [(kind, file) for kind, file in told(go, "pooled") if not kind.startswith(own) or "-workers" in kind]
    assert {kind for kind, _ in pooled} == {"/dev/null", "pipe", "/memfd", "socket"}
    shared = [kind for kind, file in pooled if file in worker_has]
    assert shared == ["/dev/null", "/memfd", "pipe", "pipe"], "what it writes to, and the marks of its attempts"


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.parametrize("way", ["HOLDFAST_URL", "--url"])
def test_no_process_of_a_worker_has_the_password_among_its_arguments(
    kept: Store, shell: Shell, worker: Start, tmp_path: Path, settings: Settings, way: str
) -> None:
    """Everybody on the host can read those. What its user typed stays where it was typed."""
    password = (urlsplit(settings.url).password or "").encode()
    assert password, "the server asks for one"
    del shell.environment["HOLDFAST_URL"]
    if way == "--url":
        process = worker("--url", settings.url)
    else:
        shell.environment[way] = settings.url
        process = worker()
    go = tmp_path / "go"
    ids = enqueue(kept, "tell", go)
    await_both(go)
    wait_until(lambda: reaper_of(process.pid), "its reaper is there")
    everybody = set(children_of(process.pid)) | {reaper_of(process.pid)}
    arguments = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in everybody}
    assert len([told for told in arguments.values() if b"_main" in told]) == 2
    assert not any(password in told for told in arguments.values())
    [isolated] = [pid for pid, told in arguments.items() if b"isolated_main" in told]
    environment = Path(f"/proc/{isolated}/environ").read_bytes()
    assert b"PATH=" in environment
    assert password not in environment
    assert b"HOLDFAST_URL" not in environment
    go.touch()
    await_state(kept, ids, State.SUCCEEDED)


def files_of(pid: int) -> Iterator[os.stat_result]:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            yield link.stat()


def told(go: Path, how: str) -> list[tuple[str, tuple[int, int]]]:
    """Of each descriptor what it is, and which file."""
    found = json.loads(Path(f"{go}-{how}.json").read_text()).values()
    return sorted((name.partition(":")[0], (ino, dev)) for name, ino, dev in found)
