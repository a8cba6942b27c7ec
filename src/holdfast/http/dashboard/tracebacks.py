"""Takes a traceback apart, so that the user's own calls stand out and those of libraries fold away."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

import holdfast

_FRAME = r'(?P<margin>\s*(?:\| ?)*\s*)File "(?P<file>.*)", line (?P<line>\d+), in (?P<name>.*)'
_INSTALLED = r"[/\\](?:site|dist)-packages[/\\]"
_OURS = str(Path(holdfast.__file__).parent) + os.sep
_DEMO = _OURS + "demo" + os.sep  # plays a user's part
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_ELSEWHERE = r"[/\\]lib[/\\]python3\.\d+[/\\]"  # the standard library of the machine where it ran
LONGEST = 400  # frames that are shown


class Part(msgspec.Struct, frozen=True):
    """A run of lines: calls of the user's code, calls of libraries (`folded`: so many), or what stands between."""

    text: str
    mine: bool = False
    folded: int = 0


def parts(traceback: str) -> list[Part]:
    """Its lines in order. If no call is the user's own, none is folded."""
    found: list[Part] = []
    frame: list[str] = []
    foreign: list[str] = []
    folded = 0
    mine = False
    other: list[str] = []

    def close() -> None:
        nonlocal frame, folded
        if frame and mine:
            flush()
            found.append(Part("\n".join(frame), mine=True))
        elif frame:
            foreign.extend(frame)
            folded += 1
        frame = []

    def flush() -> None:
        nonlocal foreign, folded
        if foreign:
            found.append(Part("\n".join(foreign), folded=folded))
        foreign, folded = [], 0

    for line in traceback.rstrip("\n").split("\n"):
        opened = re.fullmatch(_FRAME, line)
        if opened is not None:
            close()
            if other:
                found.append(Part("\n".join(other)))
                other = []
            mine = _is_mine(opened["file"])
            indent = len(opened["margin"])
            frame = [line]
        elif frame and (len(line) > indent and not line[:indent].strip(" |") and line[indent] == " "):
            frame.append(line)
        else:
            close()
            flush()
            other.append(line)
    close()
    flush()
    if other:
        found.append(Part("\n".join(other)))
    if any(part.mine for part in found):
        return found
    return [Part(part.text) for part in found]


def _is_mine(file: str) -> bool:
    if file.startswith(_DEMO):
        return True
    if file.startswith("<") or re.search(_INSTALLED, file) or re.search(_ELSEWHERE, file):
        return False
    return not file.startswith((_OURS, _LIBRARY))
