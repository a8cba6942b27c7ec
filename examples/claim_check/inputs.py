"""What a client asks to have checked, and which inputs mean the same."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Any, Literal, get_args

from examples.claim_check import rubric, urls
from holdfast import content_key

InputType = Literal["url", "text", "image"]
FIELDS: dict[str, InputType] = {"url": "url", "text": "text", "image_url": "image"}
LONGEST_TEXT = 20_000  # characters: an advert, not a book
LONGEST_URL = 2_000


class InputRefused(ValueError):
    """The input can't be checked; the message says why."""


@dataclass(frozen=True)
class Input:
    type: InputType
    value: str  # as the client wrote it
    normalized: str

    @property
    def cache_key(self) -> str:
        """Equal for inputs that get the same answer. A new rubric gives new answers."""
        return content_key(self.type, self.normalized, rubric.VERSION)


def read(body: Any) -> Input:
    """What a request asks for: exactly one of `url`, `text` and `image_url`."""
    if not isinstance(body, dict):
        raise InputRefused("the body must be a JSON object")
    given = {name: value for name, value in body.items() if name in FIELDS and value is not None}
    if len(given) != 1:
        raise InputRefused(f"send exactly one of {', '.join(FIELDS)}")
    [(name, value)] = given.items()
    if not isinstance(value, str) or not value.strip():
        raise InputRefused(f"{name} must be text, and not empty")
    if re.search("[\x00\ud800-\udfff]", value):
        raise InputRefused(f"{name} is not text: it contains NUL or half of a surrogate pair")
    return of(FIELDS[name], value.strip())


def of(type: InputType, value: str) -> Input:
    if type not in get_args(InputType):
        raise InputRefused(f"there is no input type {type!r}")
    if type == "text":
        if len(value) > LONGEST_TEXT:
            raise InputRefused(f"the text has {len(value):,} characters, and {LONGEST_TEXT:,} is the most")
        return Input(type, value, " ".join(unicodedata.normalize("NFC", value).casefold().split()))
    if len(value) > LONGEST_URL:
        raise InputRefused(f"the address has {len(value):,} characters, and {LONGEST_URL:,} is the most")
    if not urls.is_web_address(value):
        raise InputRefused("that is not a web address: it must begin with http:// or https://")
    return Input(type, value, urls.canonical(value))
