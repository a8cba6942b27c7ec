"""Captured output: bounded, readable, without secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from holdfast.redact import scrub, scrubber
from holdfast.runners.capture import SEEN, Capture


@pytest.fixture
def capture() -> Iterator[Capture]:
    capture = Capture(kept=1000)
    yield capture
    capture.close()


def written(capture: Capture, data: bytes) -> str:
    for at in range(0, len(data), 30_000):  # a pipe holds 64 KB
        os.write(capture.to, data[at : at + 30_000])
        assert capture.read()
    return capture.text(scrub) or ""


def test_nothing_written_is_nothing_kept(capture: Capture) -> None:
    assert capture.read()
    assert capture.text(scrub) is None


def test_a_short_text_is_kept_as_it_is(capture: Capture) -> None:
    assert written(capture, "hällo\nworld\n".encode()) == "hällo\nworld\n"


def test_the_end_of_the_writers_is_seen(capture: Capture) -> None:
    os.write(capture.to, b"x")
    capture.started()
    assert not capture.read()
    assert capture.text(scrub) == "x"


@pytest.mark.parametrize("size", [2000, 2001, 2500, 2 * (1000 + SEEN), 2 * (1000 + SEEN) + 1, 50_000, 500_000])
def test_of_a_long_text_the_beginning_and_the_end_are_kept_and_what_is_left_out_is_told(
    capture: Capture, size: int
) -> None:
    data = bytes(97 + i * 7 % 26 for i in range(size))
    text = written(capture, data)
    if size <= 2000:
        assert text == data.decode()
        return
    first, note, last = text.split("\n")
    assert (first, last) == (data[:1000].decode(), data[-1000:].decode())
    assert note == f"… {size - 2000:,} bytes left out …"


def test_what_is_not_text_is_shown_as_far_as_it_is(capture: Capture) -> None:
    assert written(capture, b"a\xff\xfeb\x00c\xf0\x9f") == "a\ufffd\ufffdb\u2400c\ufffd"


def test_a_seam_within_a_character_does_no_harm(capture: Capture) -> None:
    text = written(capture, "€".encode() * 5000)
    first, _, last = text.split("\n")
    assert set(first) == set(last) == {"€"}


def test_secrets_are_hidden_also_at_the_seams() -> None:
    hide = scrubber(["hunter2-and-more"])
    for offset in (980, 990, 998, 1005):
        capture = Capture(kept=1000)
        data = b"." * offset + b"hunter2-and-more" + b"." * 30_000 + b"hunter2-and-more" + b"." * offset
        os.write(capture.to, data)
        capture.read()
        capture.started()
        capture.close()
        text = capture.text(hide) or ""
        assert "hunter" not in text
        assert "more" not in text


def test_memory_is_bounded(capture: Capture) -> None:
    for _ in range(100):
        os.write(capture.to, b"x" * 60_000)
        capture.read()
    assert len(capture._first) + len(capture._last) <= 4 * (1000 + SEEN)
    assert capture.size == 6_000_000
