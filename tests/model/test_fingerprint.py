"""Errors of one kind have one fingerprint, whatever ids and numbers their messages carry; others have others."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import time
import types
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.fingerprint import LENGTH, PLACE_LIMIT, fingerprint, normalised, place_of
from holdfast.model.outcome import Error, describe
from holdfast.redact import Hiding

MAIL = st.from_regex(r"\A[a-z]{1,8}(\.[a-z]{1,8})?@[a-z]{1,8}\.[a-z]{2,3}\Z")
VARYING: dict[str, st.SearchStrategy[str]] = {
    "a whole number": st.integers().map(str),
    "a decimal": st.floats(allow_nan=False, allow_infinity=False).map(str),
    "with separators": st.integers(0).map("{:,}".format),
    "hexadecimal": st.integers(2**32).map(hex),
    "a digest": st.binary(min_size=8, max_size=64).map(bytes.hex),
    "a UUID": st.uuids().map(str),
    "an instant": st.datetimes(timezones=st.just(UTC)).map(str),
    "an instant with a T": st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
    "a quoted text": st.text("abc xyz,;.-1", max_size=30).map(repr),
    "in double quotes": st.text("abc xyz,;.'1", max_size=30).map('"{}"'.format),
    "a path": st.lists(st.text("abcxyz_.-1", min_size=1, max_size=8), min_size=2, max_size=6).map(
        lambda parts: "/" + "/".join(parts)
    ),
    "a path of Windows": st.lists(st.text("abcxyz_1", min_size=1, max_size=8), min_size=1, max_size=6).map(
        lambda parts: "C:\\" + "\\".join(parts)
    ),
    "a URL": st.text("abcxyz/?=&1", min_size=1, max_size=20).map("https://example.org/{}".format),
    "an address of mail": MAIL,
    "an address of the network": st.ip_addresses(v=4).map(str),
    "a port": st.tuples(st.ip_addresses(v=4), st.integers(1, 65535)).map("{0[0]}:{0[1]}".format),
    "a list": st.lists(st.integers(0), min_size=1, max_size=9).map(lambda numbers: ", ".join(map(str, numbers))),
    "a token": st.text("abcXYZ_", min_size=41, max_size=80),
    "an object": st.integers(2**40, 2**48).map("<Client object at 0x{:x}>".format),
}


@pytest.mark.parametrize("kind", VARYING)
def test_what_differs_from_job_to_job_makes_no_difference(kind: str) -> None:
    @given(VARYING[kind], VARYING[kind])
    def check(one: str, other: str) -> None:
        texts = [f"can't reach {value} in time" for value in (one, other)]
        assert fingerprint("E", texts[0], "m.f") == fingerprint("E", texts[1], "m.f"), [*map(normalised, texts)]

    check()


WORD = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=12).filter(
    lambda word: not set(word) <= set("abcdef")
)


@given(st.lists(WORD, min_size=1, max_size=6), st.lists(WORD, min_size=1, max_size=6))
def test_other_words_are_another_kind(one: list[str], other: list[str]) -> None:
    same = fingerprint("E", " ".join(one), None) == fingerprint("E", " ".join(other), None)
    assert same == (one == other)


@given(st.tuples(WORD, WORD, WORD), st.tuples(WORD, WORD, WORD))
def test_another_code_or_place_is_another_kind(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (fingerprint(*one) == fingerprint(*other)) == (one == other)


@given(st.text(), st.text(), st.none() | st.text())
def test_any_text_has_a_short_printable_fingerprint(code: str, message: str, place: str | None) -> None:
    found = fingerprint(code, message, place)
    assert len(found) == LENGTH
    assert set(found) <= set("0123456789abcdef")


def test_half_a_character_has_one_too() -> None:
    assert fingerprint("\ud800", "\udfff x", "\ud800")


HOSTILE = (
    "a", "1", "'", '"', "`", "/", "\\", "a/", "a@", "a.", "x@a.", "http://", "h://", "# ", "-", "+", " ", "'a", "(at ",
    "+.-", "a-", "0a", ":/", "~", "deadbeef-", "\n", "“", "1 Jan ", "Mon, ", "é", "a1", "1,",
)  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_hostile_message_takes_no_longer_than_a_long_one(piece: str) -> None:
    """A pattern that backtracks would take minutes here; the bound leaves room for a busy machine."""
    normalised("warm up")
    began = time.process_time()
    fingerprint("E", piece * (1_000_000 // len(piece)), None)
    assert time.process_time() - began < 0.25


def test_known_messages_read_as_people_would_write_them() -> None:
    for message, kind in {
        "order 17 of user 'ann' not found": "order # of user # not found",
        "connection to server at 10.0.0.7, port 5432 failed": "connection to server at #, port # failed",
        "don't do 'this' or 'that'": "don't do # or #",
        "[Errno 2] No such file or directory: '/tmp/a.txt'": "[Errno #] No such file or directory: #",
        "Wed, 21 Oct 2026 07:28:00 GMT is past": "# GMT is past",
        "its process was ended by SIGKILL (at 3 of 10)": "its process was ended by SIGKILL",
        "two\n  lines": "two lines",
    }.items():
        assert normalised(message) == kind


# -- the place ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Callable[..., types.ModuleType]]:
    """Makes modules from texts, at paths of their own."""
    made: list[str] = []

    def make(path: str, text: str, name: str = "") -> types.ModuleType:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        spec = importlib.util.spec_from_file_location(name or file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        found = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = found
        made.append(spec.name)
        spec.loader.exec_module(found)
        return found

    yield make
    for name in made:
        sys.modules.pop(name, None)


def place(call: Callable[[], Any]) -> str | None:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - whatever it is
        call()
    assert raised.value.__traceback__ is not None
    return place_of(raised.value.__traceback__.tb_next)  # without this test itself


LIBRARY = "def fetch(url):\n    raise OSError(url)\n"


def test_the_place_is_the_innermost_function_of_the_users_code(module: Callable[..., types.ModuleType]) -> None:
    module("venv/lib/python3/site-packages/lib_of_others.py", LIBRARY)
    shop = module(
        "shop.py",
        "import json\nimport lib_of_others\n\n"
        "def pay():\n    Card().charge()\n\n"
        "class Card:\n    def charge(self):\n        lib_of_others.fetch('x')\n\n"
        "def read():\n    json.loads('{')\n",
    )
    assert place(shop.pay) == "shop.Card.charge"
    assert place(shop.read) == "shop.read"


def test_an_edit_above_it_does_not_move_the_place(module: Callable[..., types.ModuleType]) -> None:
    body = "def pay():\n    raise OSError\n"
    assert place(module("shop.py", body).pay) == place(module("shop.py", "# new\n\n" + body).pay) == "shop.pay"


def test_a_handler_that_is_installed_is_still_the_users_code(module: Callable[..., types.ModuleType]) -> None:
    module("venv/lib/python3/site-packages/lib_of_others.py", LIBRARY)
    module("venv/lib/python3/site-packages/shop/cards.py", "import lib_of_others\n\n"
           "def charge():\n    lib_of_others.fetch('x')\n", "shop.cards")  # fmt: skip
    tasks = module("venv/lib/python3/site-packages/shop/tasks.py", "import sys\n\n"
                   "def pay():\n    sys.modules['shop.cards'].charge()\n", "shop.tasks")  # fmt: skip
    assert place(tasks.pay) == "shop.cards.charge"


def test_a_program_is_named_by_its_file(module: Callable[..., types.ModuleType]) -> None:
    program = module("shop.py", "def pay():\n    raise OSError\n", "__mp_main__")
    assert place(program.pay) == "shop.pay"


def test_code_of_python_and_of_holdfast_is_no_place() -> None:
    from holdfast.durations import parse_duration

    assert place(partial(parse_duration, "x")) is None
    assert place(partial(shutil.rmtree, "/there/is/none")) is None
    assert place_of(None) is None


def test_a_long_place_is_cut(module: Callable[..., types.ModuleType]) -> None:
    name = "f" * 1000
    found = place(getattr(module("shop.py", f"def {name}():\n    raise OSError\n"), name))
    assert found is not None
    assert len(found) == PLACE_LIMIT


def test_a_secret_makes_no_difference_once_it_is_hidden() -> None:
    """Equal fingerprints: nothing of the secret got into them, not even as a hash."""
    kinds = set()
    for secret in ("correcthorse", "batterystaple"):
        hide = Hiding(b'{"password":"%s"}' % secret.encode(), (), "")
        try:
            raise OSError(f"login with {secret} refused")
        except OSError as error:
            kinds.add(describe(error, "OSError", hide).fingerprint)
    assert len(kinds) == 1


def test_an_error_without_a_place_is_one_of_its_task() -> None:
    late = Error("TIMED_OUT", "it ran longer than its timeout of 30 s")
    assert (
        late.at("mail").fingerprint
        == Error("TIMED_OUT", "it ran longer than its timeout of 60 s", place="mail").fingerprint
    )
    assert late.at("mail").fingerprint != late.at("report").fingerprint
    placed = Error("E", "m", place="shop.pay")
    assert placed.at("mail") is placed


def test_the_demonstration_plays_a_users_part() -> None:
    """It is what people see first: its errors must look like theirs will."""
    from holdfast.demo import live_app

    with pytest.raises(ConnectionError) as caught:
        live_app.read_prices(3, time.time())
    assert place_of(caught.value.__traceback__) == "holdfast.demo.live_app.read_prices"
