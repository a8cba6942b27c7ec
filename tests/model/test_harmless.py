"""What is shown of other people's text, and the commands we print with it."""

from __future__ import annotations

import shlex
import subprocess
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.harmless import block, harmless, is_harmless
from holdfast.model.text import named, quoted, to_serve

BIDI = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C]
UNSAFE = [*range(0x20), *range(0x7F, 0xA0), *BIDI, 0x2028, 0x2029, 0xD800, 0xDFFF]
anything = st.text(st.characters(codec=None) | st.sampled_from([chr(code) for code in UNSAFE] + ["\\", "'", " "]))


@given(anything)
def test_nothing_that_is_shown_can_be_obeyed(text: str) -> None:
    shown = harmless(text)
    assert is_harmless(shown)
    assert not any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") or ord(char) in BIDI for char in shown)
    assert len(shown.splitlines()) <= 1
    assert harmless(shown) == shown
    if is_harmless(text):
        assert shown == text


@given(anything)
def test_lines_of_a_block_are_kept_and_indented(text: str) -> None:
    lines = block(text).split("\n")
    assert all(line.startswith("    ") for line in lines)
    assert all(is_harmless(line.replace("\t", "")) for line in lines)
    assert len(lines) == len(text.replace("\r\n", "\n").rstrip("\n").split("\n"))


@pytest.mark.parametrize("code", UNSAFE)
def test_every_unsafe_character_is_written_out(code: int) -> None:
    assert not is_harmless(chr(code))
    assert harmless(f"a{chr(code)}b").isprintable()


@pytest.mark.parametrize(
    "text",
    ["", "café 東京 Ωμέγα", "שלום", "مرحبا", "👩‍👩‍👧", "नमस्ते क्‍ष", "می‌خواهم", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "[red]x[/red]", "a\\nb"],
)
def test_ordinary_text_is_left_as_it_is(text: str) -> None:
    assert harmless(text) == text


def test_what_is_written_out_can_be_read() -> None:
    assert harmless("a\x1b[31m\n\t\r\u202eb\x9b\x7f") == "a\\x1b[31m\\n\\t\\r\\u202eb\\u009b\\x7f"


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_a_name_in_a_command_is_one_word_and_no_option(name: str) -> None:
    command = f"holdfast queues resume {named(name)}"
    assert is_harmless(command)
    if is_harmless(name):
        words = shlex.split(command)
        assert words[-1] == name
        assert words[3:] == ([name] if not name.startswith("-") else ["--", name])


NAMES = [
    "mail", "", "two words", "it's", "$(touch pwned)", "`id`", "a;b", "-x", "--url=sqlite:///evil", "é東", "a\\b",
    "a\x1b[31m", "line\nbreak", "\t'\\\x07", "\u202eabc", "\x9b2J", "a\x1bf0", "\u2028é'",
]  # fmt: skip


def test_a_shell_reads_the_very_name() -> None:
    words = " ".join(quoted(name) for name in NAMES)
    assert is_harmless(words)
    read = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {words}"], check=True, capture_output=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert read.stdout.decode().split("\0")[:-1] == NAMES


@pytest.mark.parametrize("queue", ["a,b", " a", "a\x1b"])
def test_a_queue_that_an_option_cant_name_is_served_with_the_others(queue: str) -> None:
    assert to_serve("two words") == "holdfast worker APP -q 'two words'"
    assert to_serve(queue) == "holdfast worker APP, which serves every queue"
