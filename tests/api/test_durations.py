"""Wherever Python takes a duration, text does: `delay="5m"`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import BadArguments, BadSettings, Holdfast, Retry, Snooze, WaitTimeout
from holdfast.model.job import FOREVER
from holdfast.settings import Settings, load_settings
from tests.running import MakeApp

MINUTES = timedelta(minutes=90)


def test_the_options_of_an_enqueue_and_of_a_task(hf: Holdfast) -> None:
    @hf.task(timeout="90m", progress_timeout="30s", reuse="1h 30m", retry=["5s", "1m", MINUTES])
    def send() -> None: ...

    @hf.task(retry="2m")
    def other() -> None: ...

    assert (send._defaults.timeout, send._defaults.progress_timeout, send._defaults.reuse) == (5400, 30, 5400)
    assert [send._defaults.retry.delay(n, ValueError()) for n in (1, 2, 3)] == [5, 60, 5400]
    assert other._defaults.retry.delay(1, ValueError()) == 120
    job = send.using(delay="1h 30m", expires="2h", key="k").enqueue().refresh().record
    assert job.expires_at is not None
    assert round((job.run_at - job.created_at).total_seconds()) == 5400
    assert round((job.expires_at - job.created_at).total_seconds()) == 7200
    assert send.using(key="k", reuse="1d").bind().new.reuse == 86400
    assert send.using(key="k", reuse="forever").bind().new.reuse == FOREVER


def test_what_operators_say(hf: Holdfast) -> None:
    @hf.task
    def send() -> None: ...

    job = send.enqueue()
    now = hf.store.reads.now()
    job.change(delay="90m")
    moved = job.refresh().record.run_at - now
    assert timedelta(0) <= moved - MINUTES < timedelta(minutes=1)
    hf.change(f"id:{job.id}", delay="3h")
    assert job.refresh().record.run_at - now > timedelta(hours=2)
    pause = hf.pause_queue("mail", until="90m")
    assert pause.until is not None
    assert timedelta(0) <= pause.until - now - MINUTES < timedelta(minutes=1)
    assert len(hf.audit(since="1h")) == 3
    job.cancel()
    assert hf.retry("state:cancelled", spread="10m").changed == 1
    with pytest.raises(WaitTimeout, match=r"after 0\.01 s"):
        job.wait("10ms")
    assert hf.drain(seconds="0s") == 0


def test_what_handlers_raise() -> None:
    assert (Retry("busy", after="90m").after, Snooze("500ms").after) == (5400, 0.5)


def test_settings_from_everywhere(tmp_path: Path, make_app: MakeApp) -> None:
    assert Settings(lease="1m", keep_failed="4w").lease == 60  # type: ignore[arg-type]
    (tmp_path / "holdfast.toml").write_text('lease = "1m"\ngrace = 5\nkeep_finished = "3d"\n')
    found = load_settings(directory=tmp_path, environment={"HOLDFAST_POLL_MAX": "2m", "HOLDFAST_POLL_BASE": "2"})
    assert (found.lease, found.heartbeat, found.grace, found.keep_finished) == (60, 15, 5, 3 * 86400)
    assert (found.poll_max, found.poll_base) == (120, 2)
    app = make_app(lease="40s")
    assert app.settings.lease == 40
    own = Settings(queues={"mail": {"poll_max": "2m", "poll_multiplier": 3.0}}).queues
    assert own == {"mail": {"poll_max": 120, "poll_multiplier": 3.0}}
    app.reconfigure(lease="80s", grace=MINUTES)
    assert (app.settings.lease, app.settings.heartbeat, app.settings.grace) == (80, 20, 5400)


@pytest.mark.parametrize("wrong", ["5", "soon", "-5m", "5 minutes"])
def test_text_that_is_no_duration_is_refused_with_what_would_do(hf: Holdfast, wrong: Any) -> None:
    @hf.task
    def send() -> None: ...

    said = '0 or more seconds, a timedelta, or text such as "90s", "5m" or "1h 30m"'
    for call in (
        lambda: send.using(delay=wrong).enqueue(), lambda: hf.retry("state:failed", spread=wrong),
        lambda: hf.pause_queue("mail", until=wrong),
    ):  # fmt: skip
        with pytest.raises(BadArguments, match=said):
            call()
    for declare in (lambda: Settings(lease=wrong), lambda: hf.task(name="x", retry=wrong)(send.function)):
        with pytest.raises(BadSettings, match=said):
            declare()
    with pytest.raises(ValueError, match=said):
        Retry(after=wrong)
    with pytest.raises(BadSettings, match=rf"grace must be {said}, and is 'soon' \(in HOLDFAST_GRACE\)"):
        load_settings(directory=Path("/"), environment={"HOLDFAST_GRACE": "soon"})


def test_what_is_no_duration_takes_no_text() -> None:
    with pytest.raises(BadSettings, match="poll_multiplier must be of type float"):
        Settings(poll_multiplier="2s")  # type: ignore[arg-type]
