"""Options of a task and of one enqueue: refused where they are written, or kept on the job."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from typing import Any

import msgspec
import pytest

from holdfast import BadArguments, BadSettings, Exponential, Holdfast, Limits, State
from holdfast.model.retry import Custom, Fixed, NoDelay
from holdfast.tasks.manifest import TaskInfo, info_of

app = Holdfast("sqlite:///never-opened.db")


@app.task
def plain(n: int = 0) -> None: ...


BAD: list[tuple[dict[str, Any], str]] = [
    ({"delay": -1}, "delay must be 0 or more seconds, .*, not -1"),
    ({"delay": timedelta(seconds=-1)}, "delay must be 0 or more"),
    ({"delay": float("nan")}, "delay must be 0 or more"),
    ({"delay": float("inf")}, "delay must be 0 or more"),
    ({"delay": "5"}, "delay must be 0 or more"),
    ({"delay": True}, "delay must be 0 or more"),
    ({"delay": 1, "run_at": datetime.now(UTC)}, "delay and run_at exclude each other"),
    ({"run_at": datetime(2030, 1, 1)}, "run_at must be a datetime with a time zone"),
    ({"run_at": "2030-01-01"}, "run_at must be a datetime with a time zone"),
    ({"run_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))}, "run_at is .* beyond the years"),
    ({"priority": 101}, "priority must be a whole number from -100 to 100, not 101"),
    ({"priority": -101}, "priority must be a whole number"),
    ({"priority": 1.0}, "priority must be a whole number"),
    ({"priority": True}, "priority must be a whole number"),
    ({"max_attempts": 0}, "max_attempts must be a whole number from 1"),
    ({"expires": -1}, "expires must be 0 or more"),
    ({"queue": ""}, "queue must be a text of 1 to 200 characters"),
    ({"queue": "x" * 201}, "queue must be a text"),
    ({"queue": "a\x00b"}, "queue must be a text"),
    ({"queue": 3}, "queue must be a text"),
    ({"queue": " "}, "queue must have no comma, and no space at its ends, not ' '"),
    ({"queue": "a,b"}, "queue must have no comma, and no space at its ends, not 'a,b'"),
    ({"key": ""}, "key must be a text of 1 to 1000 characters"),
    ({"key": "\ud800"}, "key must be a text"),
    ({"key": "漢" * 334}, "key must take at most 1000 bytes as UTF-8, not 1,002"),
    ({"reuse": 60}, "reuse .* needs a key"),
    ({"key": "k", "reuse": "always"}, "reuse must be 0 or more seconds"),
    ({"key": "k", "reuse": -1}, "reuse must be 0 or more seconds"),
    ({"after_failure": "retry"}, "after_failure .* needs a key"),
    ({"key": "k", "after_failure": "again"}, 'after_failure is "new", "retry" or "return", not .again.'),
    ({"key": "k", "after_failure": None}, "after_failure is"),
    ({"tags": "urgent"}, "tags must be a list of texts"),
    ({"tags": None}, "tags must be a list of texts, not None"),
    ({"tags": ["a", 3]}, "tags must be a text"),
    ({"correlation_id": ""}, "correlation_id must be a text"),
    ({"colour": "red"}, "there is no option colour"),
]


@pytest.mark.parametrize(("options", "why"), BAD)
def test_a_bad_option_is_refused_where_it_is_written(options: dict[str, Any], why: str) -> None:
    with pytest.raises(BadArguments, match=rf"plain\.using: {why}"):
        plain.using(**options)


class Urgency(IntEnum):
    HIGH = 10


class Lane(StrEnum):
    MAIL = "mail"


class Moment(datetime):
    """As some libraries have them: it writes itself in a way of its own, and knows years beyond 9999."""

    later = 0

    @property
    def year(self) -> int:
        return super().year + self.later

    def astimezone(self, tz: Any = None) -> Moment:
        return self

    def isoformat(self, *_: Any, **__: Any) -> str:
        return "12000-01-01 00:00:00.00000"


def test_options_of_other_kinds_are_kept_as_plain_values(hf: Holdfast) -> None:
    """Drivers write an enum, or whatever else is not exactly a text or a number, as somebody may have told them."""
    sqlite3.register_adapter(Urgency, lambda urgency: urgency.name)
    sqlite3.register_adapter(Lane, lambda lane: lane.name.encode())

    @hf.task
    def task() -> None: ...

    moment = Moment(2031, 2, 3, 4, 5, 6, 7, UTC)
    lane = Lane.MAIL
    bound = task.using(
        priority=Urgency.HIGH, max_attempts=Urgency.HIGH, queue=lane, tags=[lane], correlation_id=lane, run_at=moment
    ).bind()
    new = bound.new
    values = [new.priority, new.max_attempts, new.queue, *new.tags, new.correlation_id, new.run_at]
    assert [type(value) for value in values] == [int, int, str, str, str, datetime]
    record = hf._submit(bound).refresh().record
    assert (record.priority, record.queue, record.tags, record.run_at) == (
        10, "mail", ("mail",), datetime(2031, 2, 3, 4, 5, 6, 7, UTC),
    )  # fmt: skip
    moment.later = 9_000
    with pytest.raises(BadArguments, match="beyond the years"):
        task.using(run_at=moment)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"timeout": -1}, "timeout must be 0 or more"),
        ({"max_attempts": 0}, "max_attempts must be a whole number"),
        ({"priority": 1000}, "priority must be a whole number"),
        ({"queue": ""}, "queue must be a text"),
        ({"queue": " mail"}, "queue must have no comma"),
        ({"queue": "mail,news"}, "queue must have no comma"),
        ({"name": "x" * 201}, "a task's name must be a text"),
        ({"retry": -1}, "a delay must be 0 or more"),
        ({"retry": [1, -1]}, "a delay must be 0 or more"),
        ({"retry": []}, "retry="),
        ({"retry": True}, "retry=True"),
        ({"retry": "often"}, "retry: a delay must be 0 or more seconds, .*, not 'often'"),
        ({"reuse": "always"}, "reuse must be 0 or more"),
        ({"aliases": "old"}, "aliases must be a list of texts"),
        ({"tags": "urgent"}, "tags must be a list of texts"),
        ({"name": ""}, "a task's name must be a text"),
        ({"retries": 3}, "there is no option retries .did you mean max_attempts.*; there are after_failure, aliases, "),
        ({"progress_timeout": 0}, "progress_timeout must be more than 0"),
        ({"progress_timeout": "5"}, "progress_timeout must be 0 or more"),
        ({"isolation": "thread"}, "HF1111 .*isolation is \"process\" or left out, not 'thread'"),
        ({"limits": Limits(cpu=1)}, "HF1111 .*limits only mean something with isolation"),
        ({"env": ["A"], "database": True}, "HF1111 .*env and database only mean something with isolation"),
        ({"isolation": "process", "limits": {"cpu": 1}}, "HF1111 .*limits takes Limits"),
        ({"isolation": "process", "env": "PATH"}, "env must be a list of texts"),
        ({"isolation": "process", "env": {"A": "1"}}, "env must be a list of texts, not {'A': '1'}"),
        ({"isolation": "process", "env": ["A=1"]}, "HF1111 .*env names variables of the worker's, without values"),
        ({"isolation": "process", "env": ["DATABASE_URL"]}, "HF1111 .*DATABASE_URL leads to the database"),
        ({"isolation": "process", "env": ["HOLDFAST_URL"]}, "HF1111 .*HOLDFAST_URL leads to the database"),
        ({"isolation": "process", "database": 1}, "HF1111 .*database is True or False"),
    ],
)
def test_a_bad_option_of_a_task_is_refused_when_it_is_declared(options: dict[str, Any], why: str) -> None:
    fresh = Holdfast("sqlite:///never-opened.db")
    with pytest.raises((BadArguments, BadSettings), match=why):
        fresh.task(**options)(plain.function)
    assert fresh.tasks == {}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"memory": 1000}, r"memory=…\) is a whole number of bytes, 67108864 or more, not 1000"),
        ({"memory": 1e9}, "whole number of bytes"),
        ({"memory": "1G"}, "whole number of bytes"),
        ({"cpu": 0.5}, r"cpu=…\) is a number of seconds, 1 or more, not 0.5"),
        ({"cpu": True}, "number of seconds"),
        ({"cpu": float("nan")}, "number of seconds"),
        ({"cpu": float("inf")}, "number of seconds"),
        ({"files": 3}, "whole number of open files, 32 or more"),
        ({"file_size": -1}, "whole number of bytes, 0 or more"),
    ],
)
def test_limits_that_can_t_work_are_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(BadSettings, match=f"HF1111 .*{why}"):
        Limits(**values)


def test_what_a_task_says_about_its_process_is_announced() -> None:
    fresh = Holdfast("sqlite:///never-opened.db")
    limits = Limits(memory=2**28, cpu=2.5, files=64, file_size=0)
    task = fresh.task(
        isolation="process", limits=limits, env=["REGION", "API_TOKEN"], database=True, progress_timeout=60
    )(plain.function)
    announced = msgspec.json.decode(msgspec.json.encode(info_of(task)), type=TaskInfo)
    assert (announced.isolation, announced.limits, announced.progress_timeout) == ("process", limits, 60.0)
    assert (announced.env, announced.database) == (("REGION", "API_TOKEN"), True)


def test_what_is_written_for_retry_becomes_a_policy() -> None:
    def policy(retry: Any) -> Any:
        return Holdfast("sqlite:///never-opened.db").task(name="t", retry=retry)(plain.function)._defaults.retry

    def custom(attempt: int, error: BaseException) -> float:
        return 1.0

    assert policy(None) == NoDelay()
    assert policy(5) == policy(5.0) == policy(timedelta(seconds=5)) == Fixed((5.0,))
    assert policy([60, 300, 900]) == policy((60, 300, 900)) == Fixed((60.0, 300.0, 900.0))
    assert policy(custom) == Custom(custom)
    assert policy(Exponential(base=1)) == Exponential(base=1)


def test_options_are_kept_on_the_job(hf: Holdfast) -> None:
    @hf.task(queue="slow", priority=3, max_attempts=7, tags=["a"])
    def task() -> None: ...

    soon = datetime(2031, 5, 6, 7, tzinfo=timezone(timedelta(hours=2)))
    by_default = task.enqueue().refresh().record
    other = task.using(queue="fast", priority=-100, max_attempts=1, tags=["b", "c"], run_at=soon, correlation_id="c-1")
    given = other.enqueue().refresh().record
    later = task.using(delay=timedelta(hours=1), expires=7200, key="k").enqueue().refresh().record
    assert (by_default.queue, by_default.priority, by_default.max_attempts, by_default.tags) == ("slow", 3, 7, ("a",))
    assert abs(by_default.run_at - by_default.created_at) < timedelta(seconds=1)
    assert (given.queue, given.priority, given.max_attempts, given.tags) == ("fast", -100, 1, ("b", "c"))
    assert given.run_at == soon
    assert given.run_at.tzinfo is UTC
    assert given.correlation_id == "c-1"
    assert (later.run_at - later.created_at).total_seconds() == pytest.approx(3600, abs=5)
    assert later.expires_at is not None
    assert (later.expires_at - later.created_at).total_seconds() == pytest.approx(7200, abs=5)
    assert later.key == "k"
    assert {record.state for record in (by_default, given, later)} == {State.QUEUED}


def test_options_add_up_and_leave_the_task_alone() -> None:
    first = plain.using(queue="a", priority=1)
    second = first.using(priority=2)
    assert (first.bind().new.queue, first.bind().new.priority) == ("a", 1)
    assert (second.bind().new.queue, second.bind().new.priority) == ("a", 2)
    assert (plain.bind().new.queue, plain.bind().new.priority) == ("default", 0)


def test_a_job_is_not_run_before_its_time(hf: Holdfast) -> None:
    ran: list[str] = []

    @hf.task
    def note(what: str) -> None:
        ran.append(what)

    note.using(delay=3600).enqueue("later")
    note.using(run_at=datetime(2999, 1, 1, tzinfo=UTC)).enqueue("much later")
    note.using(run_at=datetime(2001, 1, 1, tzinfo=UTC)).enqueue("long ago")
    note.enqueue("now")
    assert hf.drain() == 2
    assert sorted(ran) == ["long ago", "now"]


def test_bad_names_for_queues_and_states_are_refused(hf: Holdfast) -> None:
    @hf.task
    def task() -> None: ...

    with pytest.raises(BadArguments, match="queues must be a list of texts"):
        hf.worker(queues="default")
    with pytest.raises(BadArguments, match="there is no state 'done'; there are queued, running, "):
        hf.jobs(state="done")
    for nothing in ("", " "):
        with pytest.raises(BadArguments, match="says nothing"):
            hf.pause_matching(nothing)
    with pytest.raises(BadArguments, match="for arguments by name: args="):
        hf.pause_matching({"customer": 42})  # type: ignore[arg-type]
    with pytest.raises(BadArguments, match="'state:queued' has more than that"):
        hf.resume_matching("state:queued")
    with pytest.raises(BadArguments, match="the name of a queue must be a text"):
        hf.pause_queue("\x00")
    with pytest.raises(BadArguments, match="until must be a datetime with a time zone"):
        hf.pause_queue("a", until=datetime(2030, 1, 1))
    with pytest.raises(BadArguments, match="until must be 0 or more"):
        hf.pause_queue("a", until=timedelta(seconds=-1))
    assert hf.pauses() == []


def test_a_job_that_expires_before_it_is_due_is_refused() -> None:
    app = Holdfast("sqlite:///never-opened.db")

    @app.task
    def task() -> None: ...

    for delay, expires in (("1s", "0.5s"), (60, 60)):
        with pytest.raises(BadArguments, match=r"expires=.* is over when delay=.* is, so the job could never"):
            task.using(delay=delay, expires=expires)
    task.using(delay="1s", expires="2s")
    task.using(expires=0)
