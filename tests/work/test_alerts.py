"""A real worker judges by itself, and calls the application's hook once when an alert begins and once when it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Alert, BadSettings, Holdfast
from holdfast.doctor import Level, examine
from holdfast.settings import Settings
from holdfast.worker import judge, watchdog
from tests.cli.shell import Shell
from tests.running import Heard, MakeApp, working
from tests.waiting import wait_until


def test_the_hook_hears_an_alert_begin_and_end(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, heard: Heard, settings: Settings
) -> None:
    monkeypatch.setattr(watchdog, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(judge, "EVERY", 0.1)
    told: list[Alert] = []
    app, other = (make_app(alert_depth=2, alert_depth_for=0.0) for _ in range(2))
    for one in (app, other):
        one.on_alert(told.append)
        one.on_alert(lambda alert: 1 / 0)  # its own fault
        one.task(name="task")(lambda: None)
    app.pause_queue("default")
    for _ in range(3):
        app.tasks["task"].enqueue()
    with working(app), working(other):
        wait_until(lambda: told)
        [standing] = [finding for finding in examine(settings) if finding.code == "HF4208"]
        assert (standing.level, "more than 2 jobs of queue default are due" in standing.found) == (Level.WARNING, True)
        app.resume_queue("default")
        wait_until(lambda: len(told) == 2)
    assert [(alert.name, alert.subject, alert.ended_at is None) for alert in told] == [
        ("queue_depth", "default", True), ("queue_depth", "default", False),
    ]  # fmt: skip
    assert [alert.as_dict() for alert in app.alerts()] == [told[1].as_dict()]
    assert len(heard.of("alert_began")) == len(heard.of("alert_ended")) == 1
    assert len(heard.of("hook_failed")) == 2


def test_a_hook_is_a_plain_function(hf: Holdfast) -> None:
    async def hook(alert: Alert) -> None: ...

    with pytest.raises(BadSettings, match="on_alert"):
        hf.on_alert(hook)


APP = """
from pathlib import Path
from holdfast import Alert, Holdfast

hf = Holdfast(alert_age=0.1, lease=2.0, heartbeat=0.5)

@hf.task
def task() -> None: ...

@hf.on_alert
def note(alert: Alert) -> None:
    with Path("alerts.log").open("a") as log:
        print(alert.name, alert.subject, alert.ended_at is None, file=log)
"""


def test_a_worker_with_runner_processes_calls_it_too_and_commands_show_it(settings: Settings, tmp_path: Path) -> None:
    shell = Shell(tmp_path, settings, APP)
    shell("migrate", "app:hf")
    shell("queues", "pause", "default")
    shell("enqueue", "task", "--app", "app:hf")
    process = shell.start("worker", "app:hf")
    try:
        log = tmp_path / "alerts.log"
        wait_until(lambda: log.exists() and log.read_text() == "job_age default True\n", timeout=40)
        assert "alert: the oldest due job of queue default waits for" in shell("top", "--once").stdout
        [row] = shell.json("queues", "list")
        assert row["drain"]["text"] == "growing: never at this rate"
    finally:
        process.terminate()
        _, said = process.communicate(timeout=40)
    assert "alert: the oldest due job of queue default waits for" in said
