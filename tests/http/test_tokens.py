"""Job tokens: what they open, and that nothing else does."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import BadArguments, Holdfast
from holdfast.model.token import LONGEST, PREFIX, Claims, sign, verified
from holdfast.redact import scrub
from holdfast.settings import Settings
from tests.contract.places import raw
from tests.http.asking import Ask, bearer, statements

SECRET = bytes(range(32))
CLAIMS = Claims("71", datetime(2026, 11, 18, 12, 0, 0, 123456, tzinfo=UTC), "read")


@given(
    st.builds(
        Claims,
        st.integers(0, 10**18).map(str),
        st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)),
        st.sampled_from(["read", "control"]),
        st.none() | st.integers(2, 2**40),
    )
)
def test_a_token_carries_what_it_grants(claims: Claims) -> None:
    token = sign(SECRET, claims)
    assert verified(SECRET, token, 1.0) == claims
    assert len(token) <= LONGEST
    assert verified(bytes(32), token, 1.0) is None
    if claims.expires_at is not None:
        assert verified(SECRET, token, claims.expires_at) is None


@given(st.text() | st.text().map(lambda text: PREFIX + text) | st.binary().map(lambda b: PREFIX + b.hex()))
def test_what_we_did_not_sign_is_nothing(text: str) -> None:
    assert verified(SECRET, text, 0.0) is None


def test_no_character_of_a_token_can_be_changed() -> None:
    token = sign(SECRET, CLAIMS)
    for place in range(len(PREFIX), len(token) - 1):  # (the last one has bits that mean nothing)
        for other in "Ab-_9":
            forged = token[:place] + other + token[place + 1 :]
            assert forged == token or verified(SECRET, forged, 0.0) is None


def test_a_forged_token_is_refused_without_a_statement(tasked: Holdfast, ask: Ask) -> None:
    made = ask.submit("add", args={"a": 1}).json()
    forged = sign(SECRET, Claims(made["id"], tasked.job(made["id"]).record.created_at, "control"))
    with statements(tasked) as run:
        for path in ("", "/events", "?wait=10"):
            assert ask.get(f"/v1/jobs/{made['id']}{path}", headers=bearer(forged)).status_code == 404
        assert ask.get(f"/v1/jobs/{made['id']}/events?token={forged}").status_code == 404
        assert ask.post(f"/v1/jobs/{made['id']}/cancel", headers=bearer(forged)).status_code == 404
        assert run == []
        assert ask.get(f"/v1/jobs/{made['id']}", headers=bearer(made["token"])).status_code == 200
        assert run == ["get"], "one read by primary key"


def test_unknown_wrong_foreign_and_expired_get_the_same_answer(tasked: Holdfast, ask: Ask) -> None:
    one, other = (ask.submit("add", args={"a": n}).json() for n in range(2))
    gone = ask.submit("add", args={"a": 3}).json()
    job = tasked.job(gone["id"])
    job.cancel()
    job.delete()
    secret, created = tasked.store.credentials.signing_secret(), tasked.job(one["id"]).record.created_at
    earlier = sign(secret, Claims(one["id"], created - timedelta(seconds=1), "control"))
    expired = sign(secret, Claims(one["id"], created, "control", int(time.time()) - 1))
    answers = [
        ask.get(f"/v1/jobs/{id}", headers=bearer(token))
        for id, token in [
            (one["id"], other["token"]), (one["id"], "hfj_nonsense"), ("999999", one["token"]),
            (gone["id"], gone["token"]), (one["id"], earlier), (one["id"], expired), ("no-number", one["token"]),
            (one["id"], sign(secret, Claims(other["id"], created, "control"))),
        ]
    ]  # fmt: skip
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert len({tuple(sorted(answer.headers.items())) for answer in answers}) == 1


def test_python_makes_tokens_with_a_scope_and_an_end(tasked: Holdfast, ask: Ask) -> None:
    job = tasked.tasks["fail"].enqueue("no")
    place = f"/v1/jobs/{job.id}"
    assert ask.get(place, headers=bearer(job.token())).status_code == 200
    assert ask.post(f"{place}/pause", headers=bearer(job.token())).status_code == 403
    assert ask.post(f"{place}/pause", headers=bearer(job.token("control", ttl=60))).json()["state"] == "paused"
    assert ask.get(place, headers=bearer(job.token(ttl=timedelta(0)))).status_code == 404
    for wrong in ({"scope": "write"}, {"ttl": -1}, {"ttl": "soon"}):
        with pytest.raises(BadArguments):
            job.token(**wrong)


def test_events_end_with_their_token(tasked: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    job = tasked.tasks["add"].using(delay=3600).enqueue(1)
    token = job.token(ttl=3600)
    monkeypatch.setattr("holdfast.http.call.time", SimpleNamespace(time=lambda: time.time() + 3600))
    events = Ask(tasked.asgi()).get(f"/v1/jobs/{job.id}/events?token={token}")
    assert events.text.count("event: status") == 1, "and it has an end"


def test_a_token_is_of_no_use_elsewhere(tasked: Holdfast, ask: Ask) -> None:
    made = ask.submit("add", args={"a": 1}).json()
    refused = ask.submit("add", args={"a": 1}, headers=bearer(made["token"]))
    assert (refused.status_code, refused.json()["code"]) == (403, "HF1502")
    # In a URL it ends up in logs: only where a browser can't send a header.
    assert ask.get(f"/v1/jobs/{made['id']}?token={made['token']}").status_code == 403


def test_without_the_secret_that_signed_them_tokens_open_nothing(
    tasked: Holdfast, settings: Settings, make_app: Any
) -> None:
    job = tasked.tasks["add"].enqueue(1)
    token = job.token()
    with raw(settings) as sql:
        sql("delete from {secrets}")  # as the documentation says
    again = make_app()
    assert Ask(again.asgi()).get("/v1/jobs/1", headers=bearer(token)).status_code == 404
    assert Ask(again.asgi()).get("/v1/jobs/1", headers=bearer(again.job(job.id).token())).status_code == 200


def test_two_applications_sign_with_the_same_secret(tasked: Holdfast, make_app: Any) -> None:
    other = make_app()
    assert tasked.store.credentials.signing_secret() == other.store.credentials.signing_secret()
    token = tasked.tasks["add"].enqueue(1).token()
    assert Ask(other.asgi()).get("/v1/jobs/1", headers=bearer(token)).status_code == 200


def test_the_redactor_knows_tokens_and_keys(tasked: Holdfast) -> None:
    token, key = sign(SECRET, CLAIMS), tasked.create_api_key("ci", "viewer")
    assert scrub(f"asked with {token} and {key}.") == "asked with *** and ***."
