"""The model's client, over both wire shapes, against every fault of the stand-in."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from examples.claim_check import model as client
from examples.claim_check.deadline import Connections
from examples.claim_check.model import Model, ModelConfig, ModelError
from tests.examples.claim_check.conftest import KEY
from tests.examples.claim_check.standin import MODEL, REPORT, SOURCES, StandIn
from tests.waiting import wait_until


def asking(marker: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "Judge."}, {"role": "user", "content": f"Buy this [[{marker}]]"}]


def failing(model: Model, marker: str) -> ModelError:
    with pytest.raises(ModelError) as failed:
        model.ask(asking(marker))
    return failed.value


def test_an_answer(model: Model, standin: StandIn) -> None:
    answer = model.ask(asking("ok"))
    assert (answer.text, answer.citations, answer.model, answer.calls, answer.cut) == (REPORT, (), MODEL, 1, False)
    assert standin.calls == 1
    assert standin.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_the_request_has_the_shape_of_its_endpoint(model: Model, standin: StandIn, shape: str) -> None:
    model.ask(asking("ok"))
    [body] = standin.requests
    if shape == "chat":
        assert body == {"model": "sonar-pro", "messages": asking("ok")}
    else:
        assert body == {"model": "sonar-pro", "input": asking("ok"), "store": False}


def test_a_picture_is_a_part_of_the_message(model: Model, standin: StandIn, shape: str) -> None:
    model.ask([{"role": "user", "content": "Look", "image_url": "https://a.example/b.png"}])
    [message] = standin.requests[0]["messages" if shape == "chat" else "input"]
    assert message["role"] == "user"
    text, image = message["content"]
    assert text["text"] == "Look"
    if shape == "chat":
        assert image == {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}
    else:
        assert image == {"type": "input_image", "image_url": "https://a.example/b.png"}


def test_a_preset_is_asked_for_as_one(a_model: Callable[..., Model], standin: StandIn) -> None:
    a_model(model="preset:high").ask(asking("ok"))
    assert standin.requests[0]["preset"] == "high"
    assert "model" not in standin.requests[0]


def test_no_key_no_header(standin: StandIn) -> None:
    Model(ModelConfig(standin.url)).ask(asking("ok"))
    assert "Authorization" not in standin.headers[0]


def test_sources_beside_the_text_are_citations(model: Model) -> None:
    found = model.ask(asking("only-sources")).citations
    assert {citation.url for citation in found} == {source["url"] for source in SOURCES}
    assert {(citation.url, citation.title, citation.snippet) for citation in found} >= {
        (source["url"], source["title"], source["snippet"]) for source in SOURCES
    }


def test_one_500_costs_one_more_call(model: Model, standin: StandIn) -> None:
    assert model.ask(asking("500-once")).calls == standin.calls == 2


def test_after_three_500_it_gives_up_for_now(model: Model, standin: StandIn) -> None:
    failed = failing(model, "500-always")
    assert (failed.code, failed.permanent, failed.calls) == ("MODEL_UNAVAILABLE", False, 3)
    assert "500: out of order" in failed.reason
    assert standin.calls == 3


def test_it_waits_as_long_as_retry_after_says(model: Model, standin: StandIn) -> None:
    began = time.monotonic()
    answer = model.ask(asking("429"))
    assert answer.calls == standin.calls == 2
    ours = time.monotonic() - began - answer.latency_ms / 1000
    assert ours >= 0.99, "our own waiting is not the model's"


def test_it_does_not_wait_for_long(
    a_model: Callable[..., Model], standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LONGEST_WAIT", 0.5)
    failed = failing(a_model(), "429")
    assert (failed.code, failed.permanent, failed.retry_after, failed.calls) == ("MODEL_RATE_LIMITED", False, 1.0, 1)
    assert standin.calls == 1


def test_tries_are_one_and_two_units_apart(standin: StandIn) -> None:
    began = time.monotonic()
    failing(Model(ModelConfig(standin.url, delay_unit=0.2)), "500-always")
    assert time.monotonic() - began >= 0.6


@pytest.mark.parametrize(
    ("status", "code", "calls"),
    [
        (400, "MODEL_BAD_REQUEST", 1),
        (401, "MODEL_UNAUTHORIZED", 1),
        (403, "MODEL_FORBIDDEN", 1),
        (404, "MODEL_ENDPOINT_GONE", 1),
        (410, "MODEL_ENDPOINT_GONE", 1),
        (308, "MODEL_ENDPOINT_GONE", 1),
        (422, "MODEL_BAD_REQUEST", 1),
    ],
)
def test_a_refusal_is_permanent(model: Model, standin: StandIn, status: int, code: str, calls: int) -> None:
    failed = failing(model, f"status {status}")
    assert (failed.code, failed.permanent, failed.calls) == (code, True, calls)
    assert f"answers {status}" in failed.reason
    assert standin.calls == calls


@pytest.mark.parametrize(
    ("status", "code"), [(429, "MODEL_RATE_LIMITED"), (500, "MODEL_UNAVAILABLE"), (503, "MODEL_UNAVAILABLE")]
)
def test_what_may_pass_is_tried_three_times(model: Model, standin: StandIn, status: int, code: str) -> None:
    failed = failing(model, f"status {status}")
    assert (failed.code, failed.permanent, standin.calls) == (code, False, 3)


def test_errors_say_no_key(model: Model) -> None:
    """The stand-in repeats what it was sent, as some servers do."""
    failed = failing(model, "status 401")
    assert "(key)" in failed.reason
    assert KEY not in str(failed) + repr(model) + repr(model.config)


def test_an_endpoint_that_is_no_more(standin: StandIn, shape: str) -> None:
    failed = failing(Model(ModelConfig(standin.url.replace("/v1", "/v9"), shape=shape)), "ok")
    assert (failed.code, failed.permanent, standin.calls) == ("MODEL_ENDPOINT_GONE", True, 1)
    assert "endpoint gone" in failed.reason


def test_a_truncated_stream_is_a_broken_connection(model: Model, standin: StandIn) -> None:
    failed = failing(model, "truncated")
    assert (failed.code, failed.permanent, failed.calls) == ("MODEL_UNREACHABLE", False, 3)
    assert "the connection to the model failed" in failed.reason
    assert standin.calls == 3


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    monkeypatch.setattr(Connections, "__call__", lambda self, step, details: steps.append(step))
    with StandIn() as gone:
        pass
    failed = failing(Model(ModelConfig(gone.url, delay_unit=0.01)), "ok")
    assert (failed.code, failed.permanent, failed.calls) == ("MODEL_UNREACHABLE", False, 3)
    assert steps.count("connection.connect_tcp.started") == 3, "the HTTP library does not try again by itself"


def test_what_is_no_json_is_not_asked_for_again(model: Model, standin: StandIn) -> None:
    failed = failing(model, "not-json")
    assert (failed.code, failed.permanent, standin.calls) == ("MODEL_BAD_REPLY", False, 1)
    assert "not JSON" in failed.reason


def test_a_reply_has_a_largest_size(model: Model, standin: StandIn) -> None:
    failed = failing(model, "large")
    assert (failed.code, failed.permanent, standin.calls) == ("MODEL_BAD_REPLY", False, 1)
    assert "larger than 1,000,000 bytes" in failed.reason


def test_a_slow_answer_is_an_answer(model: Model) -> None:
    assert model.ask(asking("slow 0.3")).latency_ms >= 300


@pytest.mark.parametrize("marker", ["slow 70", "dribble"])
def test_a_call_has_one_limit_for_all_of_it(a_model: Callable[..., Model], marker: str) -> None:
    failed = failing(a_model(timeout=0.3), marker)  # it ends, though the answer does not
    assert (failed.code, failed.permanent, failed.calls) == ("MODEL_TIMEOUT", False, 3)
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "claim-check-request"])


def test_an_answer_that_was_cut_says_so(model: Model) -> None:
    assert model.ask(asking("cut")).cut


BAD_CHATS: list[Any] = [
    [], {}, "x", None, 7, {"choices": []}, {"choices": [{}]}, {"choices": [{"message": {}}]},
    {"choices": [{"message": {"content": None}}]}, {"choices": [{"message": {"content": 7}}]},
    {"choices": [{"message": {"content": "x"}}], "citations": 7},
]  # fmt: skip
BAD_RESPONSES: list[Any] = [
    [], {}, {"output": []}, {"output": [{}]}, {"output": [{"type": "message"}]}, "x", None, 7,
    {"output": [{"type": "message", "content": [{"type": "output_text", "text": None}]}]},
    {"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]},
    {"status": "failed", "error": {"message": "overloaded"}, "output": []},
]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "reply"), [*(("chat", reply) for reply in BAD_CHATS), *(("responses", reply) for reply in BAD_RESPONSES)]
)  # fmt: skip
def test_json_of_another_shape_is_a_clear_error(standin: StandIn, shape: str, reply: Any) -> None:
    standin.replies = [reply]
    failed = failing(Model(ModelConfig(standin.url, shape=shape)), "ok")
    assert (failed.code, failed.permanent, standin.calls) == ("MODEL_BAD_REPLY", False, 1)


def test_sources_that_are_none_are_left_out(standin: StandIn) -> None:
    sources = [
        None,
        7,
        {},
        {"url": 7},
        {"url": "javascript:alert(1)"},
        "no address",
        {"url": "https://a.example", "title": 7},
    ]
    standin.replies = [{"choices": [{"message": {"content": "x"}}], "search_results": sources, "citations": None}]
    [citation] = Model(ModelConfig(standin.url)).ask(asking("ok")).citations
    assert (citation.url, citation.title) == ("https://a.example", "")


def test_what_no_database_keeps_is_not_in_an_answer(standin: StandIn) -> None:
    standin.replies = [{"choices": [{"message": {"content": "a\0b\ud800c"}}]}]
    assert Model(ModelConfig(standin.url)).ask(asking("ok")).text == "ab?c"


def test_retry_after_is_seconds_or_a_date() -> None:
    assert client._retry_after("7") == 7
    in_a_minute = format_datetime(datetime.now(UTC) + timedelta(minutes=1), usegmt=True)
    assert 55 < (client._retry_after(in_a_minute) or 0) <= 60
    assert client._retry_after("Thu, 01 Jan 1970 00:00:00 GMT") == 0
    assert [client._retry_after(text) for text in ("", "soon", "-1", "1.5", "٣")] == [None] * 5


def test_configuration_comes_from_the_environment() -> None:
    least = ModelConfig.from_environment({"CLAIM_CHECK_MODEL_URL": "https://m.example/v1"})
    assert least == ModelConfig("https://m.example/v1", "", "sonar-pro", "chat", 60.0, 1.0)
    names = {
        "URL": "http://m.example",
        "KEY": "k",
        "NAME": "n",
        "SHAPE": "responses",
        "TIMEOUT": "5",
        "DELAY_UNIT": ".1",
    }
    whole = ModelConfig.from_environment({f"CLAIM_CHECK_MODEL_{name}": value for name, value in names.items()})
    assert whole == ModelConfig("http://m.example", "k", "n", "responses", 5.0, 0.1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("URL", ""), ("URL", "m.example"), ("SHAPE", "completions"), ("KEY", "a\nb"), ("KEY", "clé"),
        ("TIMEOUT", "600"), ("TIMEOUT", "0"), ("TIMEOUT", "nan"), ("TIMEOUT", "soon"),
        ("DELAY_UNIT", "60"), ("DELAY_UNIT", "-1"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    right = {"CLAIM_CHECK_MODEL_URL": "https://m.example"}
    with pytest.raises(ValueError, match=f"CLAIM_CHECK_MODEL_{name}"):
        ModelConfig.from_environment({**right, f"CLAIM_CHECK_MODEL_{name}": value})
