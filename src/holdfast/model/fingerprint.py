"""The fingerprint of an error: equal for errors of one kind, so that thousands of failed jobs show as a few groups.

It is made of the error's code, its message without what differs from job to job, and the place in the user's code. No
line numbers: they change with every edit. The message must be free of secrets already; what is kept is a hash."""

from __future__ import annotations

import os
import re
from functools import cache, lru_cache
from types import FrameType, TracebackType
from typing import Literal

LENGTH = 10  # hexadecimal digits
LOOKED_AT = 1_000  # characters of a message: a long tail is rarely the cause
COMPARED = 300  # of these, once what varies is replaced
PLACE_LIMIT = 200
LONG = 40  # characters of a word that no language has: a token, a key, a hash

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_PART = r"[\w.@%+~=:-]"  # of a path
# In this order, what varies from job to job. Each alternative starts where a word starts or at a character of its own,
# and backtracks over one word at most, so hostile texts take no longer than others.
_VARIES = (
    r"(?P<how_far> \(at \d+(?: of \d+)?\))"  # how far a job was when its process was ended
    r"|\"[^\"\n]*(?:\"|\Z)|(?<!\w)'[^'\n]*(?:'(?!\w)|\Z)|`[^`\n]*`|“[^”\n]*”"  # a value, quoted; its end may be cut off
    r"|(?<!\w)[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s'\")>\]]+"  # a URL
    r"|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"  # an address of mail
    r"|(?<!\w)[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?!\w)"  # a UUID
    rf"|(?<!\w)(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{{0,6}},? )?\d{{1,2}}[ -]{_MONTH}[ -]\d{{4}}(?!\w)"
    rf"|(?<![\w.@%+~=:/\\-]){_PART}*(?:[/\\]{_PART}+)+[/\\]?"  # a path
    rf"|(?<!\w)[-+]?(?=\w{{0,{LONG}}}\d)\w+"  # a number, or a word with one in it
    rf"|(?<!\w)(?:[0-9a-fA-F]{{8,}}(?!\w)|\w{{{LONG},}})"  # hexadecimal without a digit; a token
)
_LIST = r"#(?:[.,:;/+-]{0,3}\s?#)+"  # 1.5, 10:30, 1, 2, 3
_SPACE = r"\s+"

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_DEMO = _HERE + "demo" + os.sep  # plays a user's part
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = r"[/\\](?:site|dist)-packages[/\\]"


def fingerprint(code: str, message: str, place: str | None) -> str:
    """Ten hexadecimal digits. `place`: `place_of` the error; of one that has none (a timeout, a crash), its task."""
    from hashlib import blake2b

    parts = "\x1f".join((code, normalised(message), place or ""))
    return blake2b(parts.encode("utf-8", "replace"), digest_size=LENGTH // 2).hexdigest()


def normalised(message: str) -> str:
    """The message with `#` for whatever differs from job to job: numbers, ids, quoted values, paths, instants."""
    varies, listed, space = _patterns()
    text = varies.sub(lambda found: "" if found["how_far"] else "#", message[:LOOKED_AT])
    return space.sub(" ", listed.sub("#", text))[:COMPARED]


@cache
def _patterns() -> list[re.Pattern[str]]:
    """Compiled at first use: that takes milliseconds, and a program that only enqueues needs none of them."""
    return [re.compile(pattern) for pattern in (_VARIES, _LIST, _SPACE)]


def place_of(traceback: TracebackType | None) -> str | None:
    """The innermost function of the user's code that the error passed through, as `module.function`; None: there is
    none. The user's code is what is neither Python's nor installed; and if the handler itself is installed, as in a
    container, its package."""
    package: str | None = None
    found: FrameType | None = None
    while traceback is not None:
        frame = traceback.tb_frame
        file = frame.f_code.co_filename
        origin = _origin(file)
        if origin != "python":
            package = package or _package(frame)
            if origin == "own" or _package(frame) == package:
                found = frame
        traceback = traceback.tb_next
    return None if found is None else f"{_module(found)}.{found.f_code.co_qualname}"[:PLACE_LIMIT]


def from_users_code(traceback: TracebackType | None) -> TracebackType | None:
    """Without the calls of ours and of Python's that lead to the user's code; the whole if it never gets there."""
    first = traceback
    while first is not None and _origin(first.tb_frame.f_code.co_filename) == "python":
        first = first.tb_next
    return first or traceback


@lru_cache(4096)
def _origin(file: str) -> Literal["python", "installed", "own"]:
    """Where code comes from. Ours counts as Python's: neither is the user's."""
    file = file if file.startswith("<") else os.path.abspath(file)
    if file.startswith(_DEMO):
        return "own"
    if file.startswith(("<frozen ", _HERE)):
        return "python"
    if re.search(_INSTALLED, file):
        return "installed"
    return "python" if file.startswith(_LIBRARY) else "own"


def _module(frame: FrameType) -> str:
    """Its name; of a program, the name of its file: a worker imports it under another name than a shell runs it."""
    name = frame.f_globals.get("__name__")
    if isinstance(name, str) and name not in ("__main__", "__mp_main__"):
        return name
    return os.path.splitext(os.path.basename(frame.f_code.co_filename))[0]


def _package(frame: FrameType) -> str:
    return _module(frame).partition(".")[0]
