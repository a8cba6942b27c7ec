"""Where workers of one host meet, others may write: whatever they put there, nothing of the user's is touched, and
workers go on."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.store.base import Store
from holdfast.tasks.task import Task
from holdfast.worker.neighbours import Alone, Neighbours, meet, meeting_place
from tests.crash.fleet import Fleet, a_fleet
from tests.doctor.examined import complaints
from tests.running import Heard, working
from tests.waiting import wait_until

HOST = "here"
DEAD = ("first~0123456789ab", "second~0123456789ab")
FILES = ("letter.txt", "notes~0123456789ab")  # of the user's; one looks like ours


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "run"
    place.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    return place


@pytest.fixture
def app(make_app: Callable[..., Holdfast]) -> Holdfast:
    return make_app(host=HOST)


@pytest.fixture
def task(app: Holdfast) -> Task[[], str]:
    @app.task
    def task() -> str:
        return "done"

    return task


def levels(store: Store) -> list[Path]:
    """The directories of ours, from the outermost on."""
    path = getattr(store.db, "path", None)
    if path is not None:
        top = Path(f"{path}-workers")
        return [top, top / HOST]
    top = Path(os.environ["XDG_RUNTIME_DIR"]) / f"holdfast-{os.getuid()}"
    return [top, top / store.schema.store_id, top / store.schema.store_id / HOST]


def swap(store: Store, level: int, home: Path) -> Path:
    """Put a link to the user's files in the place of a directory of ours. Returns where their own innermost is now."""
    ours = levels(store)[level:]
    below = ours[-1].relative_to(ours[0])
    theirs = home / below
    theirs.mkdir(parents=True)
    for name in FILES:
        (theirs / name).write_text("precious")
    aside = home.with_name("aside")
    ours[0].parent.mkdir(parents=True, exist_ok=True)
    if ours[0].exists():
        ours[0].rename(aside)
    ours[0].symlink_to(home)
    assert {path.name for path in ours[-1].iterdir()} == set(FILES), "that is what a look by name would find"
    return aside / below


def kept(home: Path) -> set[str]:
    return {path.name for path in home.rglob("*") if path.is_file() and path.read_text() == "precious"}


def at(app: Holdfast, level: int) -> int:
    if level >= len(levels(app.store)):
        pytest.skip("beside a SQLite file there are two levels")
    return level


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_link_that_was_there_before_is_not_followed_and_the_worker_says_so(
    app: Holdfast, task: Task[[], str], heard: Heard, tmp_path: Path, level: int
) -> None:
    home = tmp_path / "home"
    swap(app.store, at(app, level), home)
    job = task.enqueue()
    assert app.drain() == 1  # it has looked for neighbours by then
    assert job.refresh().result == "done"
    assert kept(home) == set(FILES)
    assert {path.name for path in home.rglob("*") if path.is_file()} == set(FILES), "nothing was added"
    [alone] = heard.of("alone")
    assert alone["why"] == f"{str(levels(app.store)[level])!r} can't be used: it is a symbolic link"
    assert [told.found for told in complaints(app.settings) if told.code == "HF4206"] == [alone["why"]]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_link_put_there_while_a_worker_runs_leads_it_nowhere(
    app: Holdfast, task: Task[[], str], heard: Heard, tmp_path: Path, level: int
) -> None:
    home = tmp_path / "home"
    with working(app):
        wait_until(lambda: heard.of("worker_started"))
        place = swap(app.store, at(app, level), home)
        for name in DEAD:  # once the second is gone, it has looked at everybody since the swap
            (place / name).touch()
            wait_until(lambda: not any((place / dead).exists() for dead in DEAD))
        job = task.enqueue()
        assert job.wait(timeout=20) == "done"
    assert kept(home) == set(FILES)
    assert list(place.iterdir()) == []
    assert heard.of("alone") == []


def test_what_others_own_or_may_write_to_is_no_place_to_meet(app: Holdfast, heard: Heard) -> None:
    for directory in levels(app.store):
        for mode in (0o770, 0o707, 0o720, 0o702):
            directory.mkdir(exist_ok=True)
            directory.chmod(mode)
            with pytest.raises(Alone, match=f"others may write to it \\(mode {mode:o}\\)"):
                meeting_place(app.store, HOST)
        directory.chmod(0o755)
        if os.getuid() == 0:
            os.chown(directory, 1, 1)
            with pytest.raises(Alone, match="it belongs to user 1, and this is user 0"):
                meeting_place(app.store, HOST)
            os.chown(directory, 0, 0)
    place = meeting_place(app.store, HOST)
    assert place is not None
    os.close(place)


@pytest.mark.parametrize("host", ["a/b", "/etc", "..", ".", "h" * 300, "nul\0"])
def test_a_host_whose_name_is_no_file_name_leads_nowhere_else(app: Holdfast, heard: Heard, host: str) -> None:
    alone = meet(app.store, host, "w~0123456789ab")
    assert (alone.descriptor, alone.dead()) == (None, [])
    assert len(heard.of("alone")) == 1


def test_a_runtime_directory_that_is_odd_or_unusable(
    app: Holdfast, heard: Heard, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "sqlite":
        pytest.skip("workers on a SQLite file meet beside it")
    odd = tmp_path / "with spaces, ümlaut\nand \udcff"
    odd.mkdir(mode=0o300)  # may be entered, not be read
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(odd))
    neighbours = meet(app.store, HOST, "w~0123456789ab")
    assert neighbours.descriptor is not None
    neighbours.leave()
    monkeypatch.setenv("XDG_RUNTIME_DIR", "run")  # relative: not to be used
    monkeypatch.setattr("tempfile.tempdir", str(odd / "nowhere"))
    assert meet(app.store, HOST, "w~0123456789ab").descriptor is None
    [alone] = heard.of("alone")
    assert alone["why"] == f"{str(odd / 'nowhere')!r} can't be used: No such file or directory"


def test_only_files_of_workers_are_looked_at_and_removed(app: Holdfast, tmp_path: Path) -> None:
    neighbours = meet(app.store, HOST, "w~0123456789ab")
    place = levels(app.store)[-1]
    user = tmp_path / "mine"
    user.write_text("precious")
    (place / "link~0123456789ab").symlink_to(user)
    (place / "directory~0123456789ab").mkdir()
    os.mkfifo(place / "fifo~0123456789ab")
    others = [".hidden~0123456789ab", "letter.txt", "short~0123456789a", "long~0123456789abc", "UPPER~0123456789AB"]
    if os.getuid() == 0:
        others.append("foreign~0123456789ab")
    for name in (*others, *DEAD):
        (place / name).touch()
    if os.getuid() == 0:
        os.chown(place / "foreign~0123456789ab", 1, 1)
    before = {path.name for path in place.iterdir()}
    assert set(neighbours.dead()) == set(DEAD)
    for name in (*before, "../letter.txt", "../../mine", str(user)):
        if name != "w~0123456789ab":
            neighbours.bury(name)
    assert {path.name for path in place.iterdir()} == before - set(DEAD)
    assert user.read_text() == "precious"
    neighbours.leave()


def test_a_worker_that_has_left_touches_nothing_through_a_descriptor_that_is_anothers_by_now(
    app: Holdfast, tmp_path: Path
) -> None:
    place = meeting_place(app.store, HOST)
    assert place is not None
    neighbours = Neighbours(place, "w~0123456789ab")
    neighbours.leave()
    user = tmp_path / "user"
    user.mkdir()
    (user / DEAD[0]).touch()
    opened = os.open(user, os.O_RDONLY)
    if opened != place:
        os.dup2(opened, place)
        os.close(opened)
    try:
        assert neighbours.dead() == []
        neighbours.bury(DEAD[0])
        neighbours.leave()
        assert stat.S_ISDIR(os.fstat(place).st_mode), "nor closes it"
        assert (user / DEAD[0]).exists()
    finally:
        os.close(place)


@pytest.fixture
def fleet(app: Holdfast, tmp_path: Path) -> Iterator[Fleet]:
    with a_fleet(app.settings, tmp_path) as fleet:
        yield fleet


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_a_default_worker_keeps_working_when_its_place_is_swapped(fleet: Fleet, tmp_path: Path) -> None:
    """And one that starts afterwards works by leases alone."""
    first = fleet.start()
    home = tmp_path / "home"
    place = swap(fleet.store, 0, home)
    for name in DEAD:
        (place / name).touch()
        wait_until(lambda: not any((place / dead).exists() for dead in DEAD))
    second = fleet.start()
    fleet.enqueue("quick", 20)
    fleet.await_states(succeeded=20)
    fleet.stop(first, second)
    assert kept(home) == set(FILES)
    assert "can't notice each other's death" not in fleet.log_of(first)
    assert fleet.log_of(second).count("can't notice each other's death") == 1
    assert "it is a symbolic link" in fleet.log_of(second)
