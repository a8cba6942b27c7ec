"""What a scene says when it can't go on, or did not go as it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import scenes
from examples.scenes import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage("examples.claim_check", tmp_path)


def test_a_server_that_does_not_start_is_named_with_its_reason(stage: Stage, tmp_path: Path) -> None:
    place = {"HOLDFAST_URL": f"sqlite:///{tmp_path}/claims.db", "MAX_ATTEMPTS": "often"}
    with (
        stage.running("serve", "--port", "0", **place) as server,
        pytest.raises(RuntimeError, match=r"ended with status 1\n.*MAX_ATTEMPTS is how often"),
    ):
        stage.address(server)


def test_what_does_not_happen_is_named_with_what_the_processes_logged(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenes, "PATIENCE", 0.1)
    (tmp_path / "worker.log").write_text("no model\n")
    with pytest.raises(TimeoutError, match=r"waited 0\.1 s for two workers\nno model"):
        stage.wait_for(lambda: False, "two workers")
    assert stage.wait_for(lambda: "there", "what is there") == "there"


def test_whatever_went_wrong_is_said_at_the_end(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.expect(True, "a job was lost")
    assert stage.verdict() == 0
    stage.expect(False, "a job was done twice")
    assert stage.verdict() == 1
    said = capsys.readouterr().out
    assert "Not as it should be: a job was done twice" in said
    assert "lost" not in said
