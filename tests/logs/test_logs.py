"""Log lines that say which job they belong to: the user's own ones, too."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from holdfast import Fail, Holdfast, JobContext, Retry, Secret, events, testing
from holdfast.events import singular
from holdfast.harmless import UNSAFE
from holdfast.logs import FIELDS, JobFilter, JsonFormatter, TextFormatter, job_fields, to_stderr
from tests.running import working
from tests.waiting import wait_until

log = logging.getLogger("app.mail")


class Lines:
    """What a handler on the root logger wrote."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self._stream = io.StringIO()
        self.handler = logging.StreamHandler(self._stream)
        self.handler.addFilter(JobFilter())
        self.handler.setFormatter(formatter)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stream.getvalue().split("\n")[:-1])

    def text(self) -> str:
        return self._stream.getvalue()

    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self]


@pytest.fixture
def lines(request: pytest.FixtureRequest) -> Iterator[Lines]:
    lines = Lines(request.param())
    root = logging.getLogger()
    root.addHandler(lines.handler)
    log.setLevel(logging.INFO)
    yield lines
    root.removeHandler(lines.handler)
    log.setLevel(logging.NOTSET)


as_json = pytest.mark.parametrize("lines", [JsonFormatter], indirect=True)
as_text = pytest.mark.parametrize("lines", [TextFormatter], indirect=True)


@pytest.fixture
def app() -> Iterator[Holdfast]:
    app = Holdfast("sqlite:///unused.db")

    @app.task(max_attempts=2, retry=None)
    def send(to: str) -> None:
        log.info("sending to %s", to)

    @app.task
    async def asend(ctx: JobContext, to: str) -> None:
        log.info("sending to %s", to)
        await asyncio.sleep(0)
        await asyncio.to_thread(log.info, "on a thread")
        log.info("sent", extra={"to": to, "size": 3})

    @app.task(max_attempts=1)
    def login(user: str, pin: Secret[str], api_key: str) -> None:
        log.info("login of %s with %s and %s", user, pin, api_key, extra={"password": "pw-canary", "seen": [pin]})
        try:
            raise PermissionError(f"not with {pin}")
        except PermissionError:
            log.exception("refused, at postgresql://usr:canary@db/x")

    with testing.store(app):
        yield app


@as_json
@pytest.mark.parametrize("given", ["c-7", None])
@pytest.mark.parametrize("name", ["send", "asend"])
def test_a_handlers_own_lines_carry_the_job_the_attempt_the_worker_and_the_correlation_id(
    name: str, given: str | None, app: Holdfast, lines: Lines
) -> None:
    task = app.find_task(name).using(queue="mail")
    job = (task if given is None else task.using(correlation_id=given)).enqueue("you")
    worker = app.worker()
    worker.drain()
    found = [line for line in lines.objects() if line["logger"] == "app.mail"]
    assert len(found) == {"send": 1, "asend": 3}[name]
    for line in found:
        assert {field: line[field] for field in FIELDS} == {
            "job_id": job.id, "task": name, "queue": "mail", "attempt": 1, "worker": worker.id,
            "correlation_id": given or f"job-{job.id}",
        }  # fmt: skip
        assert line["level"] == "info"
        assert line["time"].endswith("+00:00")
    assert found[0]["message"] == "sending to you"
    if name == "asend":
        assert (found[2]["message"], found[2]["to"], found[2]["size"]) == ("sent", "you", 3)


@as_json
def test_the_number_of_the_attempt_is_right_and_lines_outside_of_jobs_carry_nothing(
    app: Holdfast, lines: Lines
) -> None:
    send = app.find_task("send")
    function = send.function
    failed: list[str] = []

    def once(to: str) -> None:
        function(to)
        if not failed:
            failed.append(to)
            raise ConnectionError

    send.function = once
    job = send.enqueue("you")
    app.drain()
    log.info("outside")
    found = [line for line in lines.objects() if line["logger"] == "app.mail"]
    assert [(line.get("job_id"), line.get("attempt")) for line in found] == [(job.id, 1), (job.id, 2), (None, None)]
    assert job_fields() == dict.fromkeys(FIELDS)


@as_json
def test_jobs_that_run_at_once_do_not_mix(app: Holdfast, lines: Lines) -> None:
    gate = threading.Barrier(4, timeout=20)

    @app.task
    def together(n: int) -> None:
        gate.wait()
        log.info("%s", n)
        gate.wait()
        log.info("%s", n)

    @app.task
    async def turns(n: int) -> None:
        for _ in range(5):
            log.info("%s", n)
            await asyncio.sleep(0)

    app.reconfigure(concurrency=10, threads=4)
    with testing.store(app, concurrency=10, threads=4):
        jobs = {job.id: str(n) for n, job in enumerate(app.enqueue_many(together.bind(n) for n in range(4)))}
        jobs |= {job.id: str(n) for n, job in enumerate(app.enqueue_many(turns.bind(n) for n in range(20)))}
        app.drain()
    found = [(line["job_id"], line["message"]) for line in lines.objects() if line["logger"] == "app.mail"]
    assert len(found) == 4 * 2 + 20 * 5
    assert all(jobs[id] == message for id, message in found)


@as_text
def test_lines_for_people_end_in_what_job_it_was(app: Holdfast, lines: Lines) -> None:
    job = app.find_task("send").using(correlation_id="c").enqueue("you")
    worker = app.worker()
    worker.drain()
    log.info("outside")
    [inside, outside] = list(lines)
    told = f"[job_id={job.id} task=send attempt=1 worker={worker.id} correlation_id=c]"
    assert inside.endswith(f" INFO sending to you {told}")
    assert outside.endswith(" INFO outside")


@pytest.mark.parametrize("lines", [JsonFormatter, TextFormatter], indirect=True)
def test_secrets_are_hidden_in_a_handlers_own_lines(app: Holdfast, lines: Lines) -> None:
    app.find_task("login").enqueue("usr", "pin-canary", "key-canary")
    app.drain()
    text = "\n".join(lines)
    assert "canary" not in text
    assert "login of usr with *** and ***" in text
    assert "PermissionError: not with ***" in text
    assert "postgresql://usr:***@db/x" in text


def test_any_value_and_any_text_makes_a_line() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "<odd password=canary>"

    message = "half \ud800 of a pair\nand a second line"
    extra = {"odd": Odd(), "big": 2**80, "nan": float("nan"), "keys": {1: "a", ("t",): "b"}, "set": {1}, "b": b"\xff"}
    text = JsonFormatter().format(logging.makeLogRecord({"msg": message, "name": "app", "levelname": "INFO", **extra}))
    assert "\n" not in text
    assert text.isascii()
    line = json.loads(text)
    assert line["message"] == message
    assert (line["odd"], line["big"], line["keys"], line["set"]) == ("<odd password=***", 2**80, {"1": "a"}, "{1}")


@as_json
def test_our_own_lines_carry_the_event_and_its_fields(app: Holdfast, lines: Lines) -> None:
    @app.task(max_attempts=1)
    def fails() -> None:
        raise ValueError("password=canary")

    job = fails.enqueue()
    logging.getLogger("holdfast").setLevel(logging.INFO)
    try:
        with working(app):
            wait_until(lambda: job.refresh().finished)
    finally:
        logging.getLogger("holdfast").setLevel(logging.NOTSET)
    found = {line["event"]: line for line in lines.objects()}
    assert {"worker_started", "claimed", "errored", "worker_stopped"} <= found.keys()
    assert re.search(r" on all queues, \d+ slots$", found["worker_started"]["message"])
    assert (found["errored"]["job_id"], found["errored"]["error"]) == (job.id, "ValueError: password=***")
    assert found["errored"]["message"].endswith("; no attempts are left")
    assert "failed" not in found, "the line of its last attempt has said so"
    assert "canary" not in "\n".join(lines)


@as_json
def test_a_line_about_another_job_than_the_one_it_is_written_in_names_both(app: Holdfast, lines: Lines) -> None:
    @app.task
    def parent() -> None:
        app.find_task("send").using(delay=60).enqueue("child")

    job = parent.enqueue()
    logging.getLogger("holdfast").setLevel(logging.DEBUG)
    try:
        app.drain()
    finally:
        logging.getLogger("holdfast").setLevel(logging.NOTSET)
    [line] = [line for line in lines.objects() if line.get("event") == "enqueued"]
    assert (line["job_id"], line["job"]) == (job.id, "2")


# -- what the command line sets up -------------------------------------------------------------------------------------


@contextmanager
def bare_root() -> Iterator[logging.Logger]:
    """The root logger as a fresh process has it; as a block, because pytest adds handlers of its own to each test."""
    root, ours, driver = logging.getLogger(), logging.getLogger("holdfast"), logging.getLogger("psycopg")
    jobs = events.job_log
    before = root.handlers[:], root.level, ours.level, driver.level, jobs.level
    root.handlers[:] = []
    root.setLevel(logging.WARNING)
    try:
        yield root
    finally:
        root.handlers[:] = before[0]
        for logger, level in zip((root, ours, driver, jobs), before[1:], strict=True):
            logger.setLevel(level)


@pytest.mark.parametrize(
    ("verbose", "theirs", "ours"),
    [(0, logging.WARNING, logging.WARNING), (1, logging.INFO, logging.INFO), (2, logging.INFO, logging.DEBUG)],
)
def test_how_much_is_said(verbose: int, theirs: int, ours: int) -> None:
    with bare_root() as root:
        to_stderr(verbose, "text")
        assert log.getEffectiveLevel() == theirs
        assert logging.getLogger("holdfast").level == ours
        [handler] = root.handlers
        assert isinstance(handler.formatter, TextFormatter)


def test_an_application_that_set_up_logging_itself_keeps_it_unless_json_is_asked_for() -> None:
    with bare_root() as root:
        mine = logging.NullHandler()
        root.addHandler(mine)
        root.setLevel(logging.ERROR)
        to_stderr(1, "text")
        assert root.handlers == [mine]
        to_stderr(1, "json")
        [handler] = root.handlers
        assert isinstance(handler.formatter, JsonFormatter)
        assert root.level == logging.ERROR


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A line for each job, and the lines of errors."""
    monkeypatch.setattr(events, "_job_lines", events._JobLines())
    before = events.job_log.level
    events.job_log.setLevel(logging.INFO)
    yield
    events.job_log.setLevel(before)


@pytest.mark.usefixtures("listed")
@as_text
def test_each_job_has_a_line_and_an_error_its_traceback_below(app: Holdfast, lines: Lines) -> None:
    @app.task(max_attempts=2, retry=[0])
    def shaky(to: str) -> None:
        if not failed:
            failed.append(to)
            raise ConnectionError(f"no answer from {to}")

    failed: list[str] = []
    good = app.find_task("asend").enqueue("you")
    bad = shaky.enqueue("db")
    app.worker().drain()
    told = [line for line in lines if f"job {good.id} " in line]
    zone = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d "
    assert len(told) == 1
    assert re.fullmatch(zone + rf"INFO job {good.id} \(asend\) succeeded \(\d+\.\d{{3}} s\)", told[0])
    error, *below = lines.text()[lines.text().index(f"job {bad.id} (shaky) attempt 1") :].split("\n")
    assert re.fullmatch(
        r"job .* failed after \d+\.\d{3} s: ConnectionError: no answer from db; runs again at once", error
    )
    assert below[0] == "    Traceback (most recent call last):"
    end = below.index("    ConnectionError: no answer from db")
    assert any(line.startswith("      File ") and "in shaky" in line for line in below[:end])
    assert f"job {bad.id} (shaky) succeeded, attempt 2 of 2 (" in lines.text()


@pytest.mark.usefixtures("listed")
@as_text
def test_a_deliberate_retry_is_one_line_with_its_reason_and_when_it_runs_again(app: Holdfast, lines: Lines) -> None:
    @app.task(max_attempts=2)
    def busy(after: float) -> None:
        try:
            raise ConnectionError("behind it")
        except ConnectionError:
            raise Retry("busy", after=after)  # noqa: B904 - as people write it

    @app.task
    def hopeless() -> None:
        raise Fail("no use")

    short, long, last = busy.enqueue(2.5), busy.enqueue(90), busy.enqueue(0)
    job = hopeless.enqueue()
    app.worker().drain()
    said = lines.text()
    for id, number, tail in (
        (short.id, 1, r"runs again in 2\.5 s"), (long.id, 1, "runs again in 90 s"),
        (last.id, 1, "runs again at once"), (last.id, 2, "no attempts are left"),
    ):  # fmt: skip
        line = (
            rf"WARNING job {id} \(busy\) attempt {number} of 2 asked for another attempt after 0\.\d+ s: busy; {tail}\n"
        )
        assert re.search(line, said), said
    assert "in busy" not in said, "no traceback"
    assert re.search(rf"job {job.id} \(hopeless\) attempt 1 of 3 failed .* no use; it is not tried again\n", said)
    assert last.attempts()[0].traceback, "which is kept"


@pytest.mark.usefixtures("listed")
@as_json
def test_as_json_the_line_of_a_job_and_of_an_error_have_these_fields(app: Holdfast, lines: Lines) -> None:
    job = app.find_task("asend").enqueue("you")
    app.find_task("login").enqueue("you", pin="p-canary", api_key="k-canary")
    app.worker().drain()
    [told] = [line for line in lines.objects() if line["logger"] == "holdfast.jobs" and line["job_id"] == job.id]
    assert (told["event"], told["task"], told["attempt"], told["level"]) == ("succeeded", "asend", 1, "info")
    assert 0 <= told["seconds"] < 60


@pytest.mark.usefixtures("listed")
@as_json
def test_the_traceback_of_an_error_is_a_field_without_secrets(app: Holdfast, lines: Lines) -> None:
    @app.task(max_attempts=1)
    def pay(card: Secret[str]) -> None:
        raise PermissionError(f"{card} was refused")

    pay.enqueue("4111-1111")
    app.worker().drain()
    [error] = [line for line in lines.objects() if line.get("event") == "errored"]
    assert error["traceback"].endswith("PermissionError: *** was refused\n")
    assert error["seconds"] >= 0
    assert "4111" not in lines.text()


@pytest.mark.usefixtures("listed")
@as_text
def test_of_many_jobs_only_the_number_is_told(app: Holdfast, lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "time", type("Still", (), {"monotonic": staticmethod(lambda: 5.0)}))

    def jobs(count: int) -> list[dict[str, Any]]:
        return [{"job": str(n), "task": "send"} for n in range(count)]

    for count in (60, 50, 40, 1):
        events.emit("succeeded", jobs=partial(jobs, count), count=count, worker="w")
    assert len(list(lines)) == 100
    events.emit("worker_stopped", worker="w", processed=151)
    [last] = list(lines)[100:]
    assert last.endswith(" INFO 51 more jobs ended: too many for a line each")


def test_nobody_who_does_not_watch_pays_for_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_subscribed", ())  # an application of another test may still listen
    events.job_log.setLevel(logging.WARNING)
    events.emit("succeeded", jobs=lambda: pytest.fail("the list was made"), count=1, worker="w")
    events.job_log.setLevel(logging.NOTSET)


def test_one_is_told_in_the_singular() -> None:
    said = {
        "1 jobs were given back, uncharged": "1 job was given back, uncharged",
        "claimed 1 jobs": "claimed 1 job",
        "1 jobs are late": "1 job is late",
        "1 due jobs (task t) can't run": "1 due job (task t) can't run",
        "1,001 jobs were given back": "1,001 jobs were given back",
        "11 jobs succeeded": "11 jobs succeeded",
        "worker w-1 jobs": "worker w-1 jobs",
        "0.1 jobs": "0.1 jobs",
    }
    assert {text: singular(text) for text in said} == said


HOSTILE = "x\x1b[31mRED\n2030-01-01 00:00:00,000 ERROR forged\r\u202e\x9b\u2028y"
FORGED = re.compile(r"^2030|^\S+ \S+ ERROR forged", re.MULTILINE)


@pytest.mark.parametrize("formatter", [TextFormatter, JsonFormatter])
def test_no_line_can_be_forged(formatter: type[logging.Formatter]) -> None:
    """By what is said, by its values, by an event, nor by an exception or a stack."""
    lines = Lines(formatter())
    for name in ("app.mail", "holdfast"):
        logging.getLogger(name).addHandler(lines.handler)
    try:
        log.warning("said %s", HOSTILE)
        log.warning(HOSTILE, extra={"job_id": HOSTILE, "task": HOSTILE, "correlation_id": HOSTILE, "mine": HOSTILE})
        events.emit("unserved", many=1, task=HOSTILE, queue=HOSTILE, because=HOSTILE)
        before = len(list(lines))
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            log.exception("it broke", stack_info=True)
    finally:
        for name in ("app.mail", "holdfast"):
            logging.getLogger(name).removeHandler(lines.handler)
    assert before == 3, "a line each"
    text = lines.text()
    assert not re.search(UNSAFE, text.replace("\n", ""))
    assert not FORGED.search(text)
    assert "RED" in text
    if formatter is TextFormatter:
        first, *below = text.split("\n")[3:-1]
        assert first.endswith("it broke")
        assert len(below) > 5
        assert all(line.startswith("    ") for line in below)
    else:
        assert all(json.loads(line) for line in lines)
        assert json.loads(next(iter(lines)))["message"] == f"said {HOSTILE}", "data is data"


def test_an_event_is_one_line_whoever_formats_it(caplog: pytest.LogCaptureFixture) -> None:
    events.emit("unserved", many=2, task="t", queue=HOSTILE, because="it\nis")
    assert "\n" not in caplog.records[-1].getMessage()
    assert caplog.records[-1].__dict__["holdfast"]["queue"] == HOSTILE


def test_a_secret_is_hidden_before_the_line_break_before_it_is_written_out() -> None:
    record = logging.makeLogRecord({"msg": "first\npassword=canary", "levelname": "INFO"})
    assert TextFormatter().format(record).endswith("first\\npassword=***")
