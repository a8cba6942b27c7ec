"""Keys made from what a job is about."""

from __future__ import annotations

import hashlib

from holdfast.errors import BadArguments


def content_key(*parts: str | int | bytes | None) -> str:
    """A key for jobs with this content: 64 characters, whatever the length of the parts. Equal parts give equal keys in
    every process and version; parts that differ in value, type, number or order give different ones."""
    if not parts:
        raise BadArguments("content_key: name at least one part, as in content_key('url', url)")
    digest = hashlib.sha256()
    for part in parts:
        kind, data = _encoded(part)
        # The length in front of each part: otherwise ("ab", "c") and ("a", "bc") would be the same.
        digest.update(kind + len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def _encoded(part: object) -> tuple[bytes, bytes]:
    if part is None:
        return b"n", b""
    if isinstance(part, bytes):
        return b"b", bytes(part)
    if isinstance(part, int) and not isinstance(part, bool):
        return b"i", b"%d" % part
    if isinstance(part, str):
        try:
            return b"s", str.__str__(part).encode()
        except UnicodeEncodeError:
            raise BadArguments(
                f"content_key: {part!r:.80} has half a character in it, which can't be encoded"
            ) from None
    raise BadArguments(
        f"content_key takes texts, whole numbers, bytes and None, not {part!r:.80}: write others as text, in one way"
    )
