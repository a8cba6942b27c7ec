"""Jobs kept from the command line."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path

import pytest

from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from tests.cli.shell import Shell, wait_until

APP = """
from datetime import date
from typing import Any, Literal
from holdfast import Fail, Holdfast

hf = Holdfast()

@hf.task
def say(
    word: str, times: int = 1, on: date | None = None, how: Literal["loud", "low"] = "low", rest: Any = None
) -> str:
    if word == "no":
        raise Fail("it would not", code="MUTE")
    return word * times

@hf.task
def nothing() -> None: ...
"""


@pytest.fixture
def shell(tmp_path: Path, settings: Settings) -> Shell:
    shell = Shell(tmp_path, settings, APP)
    shell.environment["HOLDFAST_APP"] = "app:hf"
    return shell


def test_values_are_read_by_the_types_of_the_task(shell: Shell, kept: Store) -> None:
    given = ["word=5", "times=3", "on=2030-01-31", "how=loud", 'rest={"a": [1]}']
    assert shell("enqueue", "say", *given).stdout == "1\n"
    assert json.loads(kept.reads.get("1").args) == {
        "word": "5", "times": 3, "on": "2030-01-31", "how": "loud", "rest": {"a": [1]},
    }  # fmt: skip
    shell("enqueue", "say", "word=a=b", "rest=bare words", "--json", '{"times": 2}')
    assert json.loads(kept.reads.get("2").args) == {"times": 2, "word": "a=b", "rest": "bare words"}


def test_options_go_with_the_job_and_a_key_makes_one_of_two(shell: Shell, kept: Store) -> None:
    options = ["--queue", "mail", "--priority", "7", "--delay", "10m", "--key", "k"]
    first = shell.json("enqueue", "nothing", *options)
    assert first == {"id": "1", "task": "nothing", "created": True, "state": "queued"}
    assert shell.json("enqueue", "nothing", *options)["created"] is False
    job = kept.reads.get("1")
    assert (job.queue, job.priority, job.key) == ("mail", 7, "k")
    assert 599 < (job.run_at - job.created_at).total_seconds() < 601


def test_waiting_prints_the_result_or_says_how_it_ended(shell: Shell, kept: Store) -> None:
    assert (
        "HF1305 job 1 is queued after 0.1 s" in shell("enqueue", "nothing", "--wait", "--timeout", "0.1", code=8).stderr
    )

    worker = shell.start("worker", "app:hf")
    try:
        assert shell("enqueue", "say", "word=ab", "times=2", "--wait").stdout == '"abab"\n'
        assert shell.json("enqueue", "say", "word=x", "--wait", "--timeout", "20")["result"] == "x"
        assert "HF1304 job 4 failed: it would not" in shell("enqueue", "say", "word=no", "--wait", code=7).stderr
    finally:
        worker.terminate()
        threading.Thread(target=worker.communicate).start()
        worker.wait(30)


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_waiting_can_be_given_up(shell: Shell, kept: Store, signum: int, code: int) -> None:
    process = shell.start("enqueue", "nothing", "--wait")
    try:
        wait_until(lambda: kept.reads.jobs())
        process.send_signal(signum)
        assert process.wait(20) == code
        assert "Traceback" not in process.communicate()[1]
    finally:
        process.kill()
        process.communicate()
    assert [job.state for job in kept.reads.jobs()] == ["queued"], "the job goes on"


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sya"], "HF1201 there is no task 'sya' in this application; declared: nothing, say (perhaps 'say')"),
        (["say", "wrd=x"], "say has no argument 'wrd', perhaps 'word'; it takes word, times, on, how, rest"),
        (["nothing", "n=1"], "nothing has no argument 'n'; it takes none"),
        (["say"], "missing a required argument: 'word'"),
        (["say", "word=x", "times=many"], "argument `times`: Expected `int`, got `str`"),
        (["say", "word"], "'word' is no argument of say: write name=value"),
        (["say", "word=x", "word=y"], "is given twice"),
        (["say", "--json", "[1]"], "--json takes a JSON object"),
        (["say", "word=x", "--delay", "soon"], "--delay soon is no duration: write 90 (seconds), 90s, 10m or 1h"),
        (["say", "word=x", "--timeout", "3"], "give both"),
        (["say", "word=x", "--priority", "101"], "priority must be a whole number"),
        (["say", "--app", "app:hff"], "no Holdfast application called 'hff'; found: hf (perhaps app:hf)"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(
    shell: Shell, arguments: list[str], said: str, settings: Settings
) -> None:
    assert said in shell("enqueue", *arguments, code=2).stderr
    store = open_store(settings)
    store.schema.migrate()
    assert store.reads.jobs() == []
    store.close()
