"""Other people's text, as it may be shown. Imports nothing of ours.

Names and messages come from whoever may write to the database. In a terminal or a log they must be text and nothing
else: no orders to the terminal, no line that looks like one of ours, no letters in another order than they are in."""

from __future__ import annotations

import re

# Controls (C0, DEL, C1), halves of characters, line and paragraph separators, what changes the direction of writing,
# and the marks of annotations. Not the joiners of emoji and scripts, which only change how their neighbours look.
UNSAFE = r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff]"
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def is_harmless(text: str) -> bool:
    return re.search(UNSAFE, text) is None


def harmless(text: str, *, lines: bool = False) -> str:
    """The text with what is unsafe written out (`\\x1b`, `\\u202e`). `lines`: it stands apart from ours, so its line
    breaks and tabs are kept."""
    if lines:
        text = text.replace("\r\n", "\n")
    return re.sub(UNSAFE, lambda found: found[0] if lines and found[0] in "\n\t" else written(found[0]), text)


def block(text: str) -> str:
    """Lines of somebody else's, indented: none of them can pass for one of ours."""
    return "\n".join(f"    {line}" for line in harmless(text, lines=True).rstrip("\n").split("\n"))


def written(char: str) -> str:
    """An unsafe character in letters, as Python, C and the `$'…'` of shells write it."""
    return _SHORT.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 0x80 else f"\\u{ord(char):04x}")
