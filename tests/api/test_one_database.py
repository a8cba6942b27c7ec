"""A program never works on another database than its operator believes: a URL in the code that differs from the one in
the environment or a file is refused at the first use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import BadSettings, Holdfast, testing
from holdfast.app_loader import load_app
from holdfast.errors import StoreError

IN_CODE = "sqlite:///code.db"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    return tmp_path


def enqueue(hf: Holdfast) -> None:
    @hf.task
    def task() -> None: ...

    with hf:
        task.enqueue()


USES: dict[str, Callable[[Holdfast], object]] = {
    "enqueue": enqueue,
    "jobs": lambda hf: hf.jobs(),
    "migrate": lambda hf: hf.migrate(),
    "worker": lambda hf: hf.worker(),
    "doctor": lambda hf: hf.doctor(),
}


@pytest.mark.parametrize("use", USES)
def test_a_url_in_the_code_and_another_in_the_environment_are_refused(
    use: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "postgresql://me:s3cret@db/jobs")
    hf = Holdfast(IN_CODE)
    with pytest.raises(BadSettings) as refused:
        USES[use](hf)
    assert refused.value.number == "HF1151"
    said = refused.value.message
    assert f"{Path(__file__)}, line " in said
    assert f"names {IN_CODE}, and HOLDFAST_URL names postgresql://me:***@db/jobs: write Holdfast() in the code" in said
    assert "or unset HOLDFAST_URL (Holdfast(url, pinned=True) ignores HOLDFAST_URL)" in said
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize(("file", "text"), [("holdfast.toml", ""), ("pyproject.toml", "[tool.holdfast]\n")])
def test_a_file_counts_as_the_environment_does(directory: Path, file: str, text: str) -> None:
    (directory / file).write_text(f'{text}url = "sqlite:///file.db"\n')
    with pytest.raises(BadSettings, match=rf"HF1151 .* and {file} names sqlite:///file.db.* or remove url from {file}"):
        enqueue(Holdfast(IN_CODE))
    enqueue(Holdfast())
    assert (directory / "file.db").exists()


@pytest.mark.parametrize("form", ["sqlite:///code.db", "sqlite:///./code.db", "sqlite:////{directory}/code.db"])
def test_the_same_database_may_be_named_twice(directory: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setenv("HOLDFAST_URL", form.format(directory=str(directory).lstrip("/")))
    enqueue(Holdfast(IN_CODE))
    assert (directory / "code.db").exists()


def test_only_the_password_may_be_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "postgresql://me:two@db/jobs")
    with pytest.raises(BadSettings, match=r"postgresql://me:\*\*\*@db/jobs with another password"):
        Holdfast("postgresql://me:one@db/jobs").migrate()


def test_code_may_pin_its_database(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///other.db")
    enqueue(Holdfast(IN_CODE, pinned=True))
    assert [path.name for path in directory.glob("*.db")] == ["code.db"]
    with pytest.raises(BadSettings, match=r"pinned=True .* needs a URL"):
        Holdfast(pinned=True)


def test_a_url_given_later_counts(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///other.db")
    hf = Holdfast(IN_CODE)
    hf.reconfigure(url="sqlite:///third.db")
    enqueue(hf)
    assert [path.name for path in directory.glob("*.db")] == ["third.db"]


def test_the_test_kit_uses_its_own_store(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///other.db")
    hf = Holdfast(IN_CODE)

    @hf.task
    def task() -> int:
        return 1

    with testing.store(hf) as kit:
        hf.migrate()
        task.enqueue()
        assert [ran.outcome for ran in kit.run_due()] == ["succeeded"]
    with pytest.raises(BadSettings, match="HF1151"):
        task.enqueue()
    assert list(directory.glob("*.db")) == []


def test_a_database_in_memory_is_refused_with_the_reason(directory: Path) -> None:
    with pytest.raises(BadSettings, match=r"HF1104 .*:memory:.* belongs to one connection, so no worker would see"):
        enqueue(Holdfast("sqlite:///:memory:"))
    assert list(directory.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_directory_that_the_user_may_not_enter_is_named(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another user: root may enter every directory."""
    closed = directory / "closed"
    closed.mkdir(mode=0o700)
    hf = Holdfast(f"sqlite:///{closed}/jobs.db")
    monkeypatch.chdir(closed)
    os.seteuid(65534)
    try:
        for use in (enqueue, lambda hf: hf.migrate()):
            with pytest.raises(StoreError, match=r"HF3301 .*jobs.db can't be reached: Permission denied"):
                use(hf)
        assert "Permission denied" in hf.doctor()[0].found
        with pytest.raises(BadSettings, match=r"HF1107 .*app.py can't be read: Permission denied"):
            load_app(f"{closed}/app.py")
        with pytest.raises(BadSettings, match=r"HF1103 holdfast.toml can't be read: .*Permission denied"):
            Holdfast()
    finally:
        os.seteuid(0)
