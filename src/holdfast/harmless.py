"""Makes untrusted text safe to display. Imports nothing of ours.

Names and messages come from anyone who may write to the database. In a terminal or a log they must be plain text: no
control sequences, no line that looks like one of ours, no change of the writing direction."""

from __future__ import annotations

import re

# Control characters (C0, DEL, C1), lone surrogates, line and paragraph separators, characters that change the writing
# direction, and annotation marks. Not the joiners of emoji and scripts, which only affect how their neighbours look.
UNSAFE = r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff]"
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def is_harmless(text: str) -> bool:
    return re.search(UNSAFE, text) is None


def harmless(text: str, *, lines: bool = False) -> str:
    """The text with unsafe characters escaped (`\\x1b`, `\\u202e`). `lines`: keep line breaks and tabs, for text
    that is shown apart from ours."""
    if lines:
        text = text.replace("\r\n", "\n")
    return re.sub(UNSAFE, lambda found: found[0] if lines and found[0] in "\n\t" else written(found[0]), text)


def block(text: str) -> str:
    """Untrusted lines, indented, so that none can pass for one of ours."""
    return "\n".join(f"    {line}" for line in harmless(text, lines=True).rstrip("\n").split("\n"))


def written(char: str) -> str:
    """The escape sequence of an unsafe character, as in Python, C and the `$'…'` of shells."""
    return _SHORT.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 0x80 else f"\\u{ord(char):04x}")
