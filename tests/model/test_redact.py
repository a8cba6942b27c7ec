"""The redactor: what it hides, what it leaves."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Holdfast, JobContext, Secret
from holdfast.redact import hide_secrets, hiding, is_secret_name, scrub, scrubber, secret_values


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at postgresql://usr:canary@db/jobs, twice", "at postgresql://usr:***@db/jobs, twice"),
        ("https://usr:can/ary@host and ftp://b:canary@c", "https://usr:***@host and ftp://b:***@c"),
        ("redis://:canary@host/0", "redis://:***@host/0"),
        ("amqp://a:can@ary@host", "amqp://a:***@host"),
        ("'POSTGRESQL://a:canary@b/c'", "'POSTGRESQL://a:***@b/c'"),
        ("host=db password=canary user=usr", "host=db password=*** user=usr"),
        ("host=db password='can ary' user=usr", "host=db password=*** user=usr"),
        ("host=db password=ca,na)ry user=usr", "host=db password=*** user=usr"),
        ("https://h/x?access_token=canary&b=2", "https://h/x?access_token=***&b=2"),
        ("{'token': 'canary', 'x': 1}", "{'token': ***, 'x': 1}"),
        ('{"api_key":"can\\"ary","y":2}', '{"api_key":***,"y":2}'),
        ("{'password': b'canary'}", "{'password': ***}"),
        ("Authorization: Bearer can.ary", "Authorization: ***"),
        ("sent Bearer canary-canary-canary", "sent Bearer ***"),
        ("X-Api-Key: canary", "X-Api-Key: ***"),
        ("wrong password: canary", "wrong password: ***"),
        ("clientSecret=canary", "clientSecret=***"),
        ("DB_PASSWORD=canary", "DB_PASSWORD=***"),
        ("Client(secret_key='canary', n=1)", "Client(secret_key=***, n=1)"),
        ('def f(password: str = "canary", n=1)', "def f(password: str = ***, n=1)"),
        ("token: Secret[str] | None = 'canary'", "token: Secret[str] | None = ***"),
        ("api_key: t.Optional[str]=canary", "api_key: t.Optional[str]=***"),
        ("password: strong", "password: ***"),
        ("password: str.canary", "password: ***"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, shown: str) -> None:
    assert scrub(text) == shown
    assert scrub(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "", "postgresql://usr@db/jobs", "https://example.org/a:b@c", "max_tokens=5, tokens: 500", "KeyError: 'token'",
        "unexpected token: }", "a token expired", "tokenizer: fast", "secretary=5", "the password is wrong",
        "def login(user: str, password: str) -> None:", "    password: str\n    token: Secret[str] | None\n",
        "lambda api_key: bytes, secret: dict[str, str]: 1", "def f(token: pydantic.SecretStr): ...",
        "12:30@noon", "basic authentication failed", "bearer authentication",
        "job 7 failed: it ran longer than its timeout of 5 s",
    ],
)  # fmt: skip
def test_the_rest_is_left_as_it_is(text: str) -> None:
    assert scrub(text) == text


@pytest.mark.parametrize("written", ["\\n", "\\r\\n", "\\t", "\\x1b", "\\u2028", "\\\\n"])
@pytest.mark.parametrize(
    "secret",
    ["password=canary", "--password canary", "authorization: Digest canary", "bearer canary-canary-canary",
     "postgresql://usr:canary@db", "ghp_canary0123456789012345", "token: canary", "<password>canary</password>"],
)  # fmt: skip
def test_a_secret_behind_a_line_break_that_is_written_out_is_hidden(written: str, secret: str) -> None:
    shown = scrub(f"ValueError('first line{written}{secret}')")
    assert "canary" not in shown
    assert shown.startswith(f"ValueError('first line{written}")
    assert scrub(shown) == shown


@pytest.mark.parametrize(
    "text", ["C:\\new\\texts\\password_policy", "a\\nb=1", "\\token", "'a\\ntokens: 5'", "\\d+\\b"]
)
def test_backslashes_hide_nothing_else(text: str) -> None:
    assert scrub(text) == text


def test_a_secret_behind_a_backslash_is_hidden_as_ever() -> None:
    assert scrub("C:\\token=canary") == "C:\\token=***"


def corpus(name: str) -> list[str]:
    lines = (Path(__file__).parent / "corpus" / name).read_text().splitlines()
    return [re.sub(r"(?<!\\)\\n", "\n", line) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("text", corpus("secrets.txt"))
def test_no_secret_of_the_corpus_is_shown(text: str) -> None:
    secrets = re.findall(r"⟦(.+?)⟧", text, re.DOTALL)
    shown = scrub(re.sub("[⟦⟧]", "", text))
    assert secrets
    assert [secret for secret in secrets if secret in shown] == [], shown
    assert not re.search("canary|Y2FuYX", shown), "nor a part of one"
    assert scrub(shown) == shown


@pytest.mark.parametrize("text", corpus("harmless.txt"))
def test_nothing_harmless_of_the_corpus_is_hidden(text: str) -> None:
    assert scrub(text) == text


@pytest.mark.parametrize(
    "name",
    ["password", "PASSWORD", "db_password", "dbPassword", "passwd", "pwd", "token", "auth_token", "X-Auth-Token",
     "secret", "client_secret", "clientSecret", "api_key", "apiKey", "api-key", "apikey", "authorization",
     "credentials",
     "private_key", "access_key", "passphrase", "password2"],
)  # fmt: skip
def test_names_that_say_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["tokens", "max_tokens", "secretary", "key", "user", "to", "compass", "tokenizer", "author", "keyboard"]
)
def test_names_that_do_not(name: str) -> None:
    assert not is_secret_name(name)


def test_values_are_hidden_by_name_at_any_depth() -> None:
    data = {
        "user": "usr",
        "auth": {"token": "t", "n": [{"password": 1}, "at x://a:b@c"]},
        "pin": 1234,
        "secret": None,
    }
    assert hide_secrets(data, {"pin"}) == {
        "user": "usr", "auth": {"token": "***", "n": [{"password": "***"}, "at x://a:***@c"]}, "pin": "***",
        "secret": None,
    }  # fmt: skip
    assert sorted(secret_values(data, {"pin"})) == ["1", "1234", "t"]
    assert sorted(secret_values({"credentials": {"a": ["x", {"b": "y"}], "c": True}})) == ["x", "y"]


def test_known_values_are_found_in_every_way_they_are_written() -> None:
    for secret in ("can/ary ü", "can\"a'ry\n", "can\\ary"):
        hide = scrubber([secret])
        written = (secret, f"at {secret}.", quote(secret, safe=""), repr([secret]), json.dumps({"x": secret}),
                   json.dumps([secret], ensure_ascii=False), f"{ValueError(secret)!r}")  # fmt: skip
        for text in written:
            assert "can" not in hide(text)
            assert "ary" not in hide(text)
    assert scrubber(["abc"])("abc") == "abc"  # too short: it would be found everywhere


def test_bytes_are_found_however_they_are_written() -> None:
    hide = hiding(b'{"blob":"aHVudGVyMnRvcA=="}', ["blob"], "")
    for written in ("hunter2top", repr(b"hunter2top"), b"hunter2top".hex(), "aHVudGVyMnRvcA=="):
        assert "***" in hide(f"refused {written}")
        assert written not in hide(f"refused {written}")


def test_a_text_of_several_lines_is_found_line_by_line() -> None:
    hide = hiding(b'{"key":"BEGIN\\nc2VjcmV0\\nEND!"}', ["key"], "")
    assert hide("    | BEGIN\n    | c2VjcmV0\n    | END!") == "    | ***\n    | ***\n    | ***"


def test_a_longer_secret_is_hidden_before_one_it_begins_with() -> None:
    assert scrubber(["canary", "canary-and-more"])("canary-and-more") == "***"


def test_the_texts_of_a_job_know_its_arguments_and_the_databases_password() -> None:
    hide = hiding(b'{"pin":"0815x","to":"you"}', {"pin"}, "postgresql://a:pa%20ss@h/d?sslpassword=other")
    assert hide("pin 0815x of you, with pa%20ss or pa ss or other") == "pin *** of you, with *** or *** or ***"
    assert hiding(b"not json", {"pin"}, "sqlite:///x.db")("you") == "you"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=8, max_size=40))
def test_a_secret_argument_is_never_shown(secret: str) -> None:
    hide = hiding(json.dumps({"pin": secret}).encode(), {"pin"}, "")
    for text in (secret, repr(secret), json.dumps(secret), f"before {secret} after"):
        assert secret not in hide(text)


@pytest.mark.parametrize(
    "hostile",
    ["a://b:" * 10_000, "password" * 8_000, "password='" * 6_000, "-" * 64_000, "_" * 64_000, "a-" * 32_000,
     "token: " * 9_000, "token=\\'" * 8_000, "bearer " * 9_000, "'" * 64_000, "A" * 64_000, "x://" * 16_000,
     "token" + " " * 64_000, "secret='" + "\\" * 64_000],
)  # fmt: skip
def test_a_hostile_text_takes_no_long_time(hostile: str) -> None:
    started = time.process_time()
    scrub(hostile)
    assert time.process_time() - started < 1.0


def test_arguments_are_secret_by_their_mark_or_their_name() -> None:
    hf = Holdfast()

    @hf.task
    def pay(
        card: Secret[str], to: str, pin: Secret[int] | None = None, codes: list[Secret[str]] | None = None,
        api_key: str = "",
    ) -> None: ...  # fmt: skip

    assert hf._secrets("pay") == {"card", "pin", "codes", "api_key"}
    assert hf._secrets("unknown") == set()


def test_marks_are_kept_beside_the_arguments_and_handlers_do_not_see_them() -> None:
    hf = Holdfast()
    seen: list[object] = []

    @hf.task
    def pay(card: Secret[str], to: str) -> None:
        seen.append((card, to))

    @hf.task
    def plain(password: str) -> None: ...

    data = pay.bind("4111", to="shop").new.args
    assert json.loads(data) == {"card": "4111", "to": "shop", "$secret": ["card"]}
    pay._run(JobContext.detached("pay"), data)
    pay._run(JobContext.detached("pay"), b'{"card":"4112","to":"bank"}')  # another producer's
    assert seen == [("4111", "shop"), ("4112", "bank")]
    assert json.loads(plain.bind("x").new.args) == {"password": "x"}  # its name says it
    assert hide_secrets({"card": "4111", "to": "shop", "$secret": ["card"]}) == {"card": "***", "to": "shop"}
    assert list(secret_values({"card": "4111", "to": "shop", "$secret": ["card"]})) == ["4111"]
    for odd in ("card", None, [1, {}], {"card": 1}):
        assert hide_secrets({"card": "4111", "$secret": odd})["card"] == "4111"


NAMES = (
    "password", "PGPASSWORD", "sslpassword", "passwd", "passphrase", "passfile", "passwords", "pwd", "otp", "secret",
    "secrets", "token", "csrftoken", "authtoken", "jwt", "apikey", "api_key", "api-key", "authorization", "credential",
    "credentials", "cookie", "set-cookie", "sessid", "sessionid", "jsessionid", "PHPSESSID", "connect.sid",
    "private_key", "access_key", "secretkey", "signing-key", "encryption_key", "master_key", "hmac_key", "account_key",
    "service_key", "deploy_key", "licence_key", "license_key",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_found_however_it_is_written(name: str) -> None:
    """What looks for signs of a name first passes over none, also if it has letters that are the same to a pattern:
    long s, Kelvin, dotted and dotless i."""
    odd = name.translate({ord("s"): "\u017f", ord("k"): "\u212a", ord("i"): "\u0131"})
    for written in (name, name.upper(), name.title(), odd, name.replace("i", "\u0130")):
        text = f"it has {written}=v4lue now"
        assert scrub(text) == scrub(f"{text}, key").removesuffix(", key"), written
    assert "v4lue" not in scrub(f"it has {name}=v4lue now")
