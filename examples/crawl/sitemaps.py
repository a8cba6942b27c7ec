"""Sitemaps: lists of addresses, as XML or as text, perhaps compressed, perhaps lists of further lists."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from itertools import islice

LARGEST = 52_428_800  # bytes of one file, unpacked
MOST = 50_000  # addresses of one file: what the protocol allows
# No `<` in it: so time grows with the text, whatever it is.
TAG = re.compile(r"<(?P<end>/?)(?:\w+:)?(?P<name>sitemapindex|urlset|rss|feed|loc|link)\b(?P<rest>[^<>]*)>")
HREF = re.compile(r"""\bhref\s*=\s*["']([^"']*)""")


class Broken(ValueError):
    """That is no sitemap."""


@dataclass
class Sitemap:
    pages: list[str] = field(default_factory=list)
    sitemaps: list[str] = field(default_factory=list)


def read(body: bytes) -> Sitemap:
    """No XML parser: entities that expand without end do nothing here, and half a file is read as far as it goes."""
    text = _unpacked(body).decode("utf-8-sig", "replace")
    if "<" not in text:
        lines = (line.strip() for line in text.splitlines())
        return Sitemap(pages=[line for line in lines if line.startswith(("http://", "https://"))][:MOST])
    kinds = {tag["name"] for tag in TAG.finditer(text)}
    locations = list(islice(_texts(text, "loc"), MOST))
    if "sitemapindex" in kinds:
        return Sitemap(sitemaps=locations)
    if not locations:
        locations = list(islice(_texts(text, "link"), MOST))
    if not locations and not kinds & {"urlset", "rss", "feed"}:
        raise Broken("it is neither a sitemap nor a feed")
    return Sitemap(pages=locations)


def _texts(text: str, name: str) -> Iterator[str]:
    """What stands between tags of this name, or in their `href`."""
    begin: int | None = None
    for tag in TAG.finditer(text):
        if tag["name"] != name:
            continue
        if not tag["end"]:
            begin = tag.end()
            if (named := HREF.search(tag["rest"])) is not None:
                yield unescape(named[1])
        elif begin is not None:
            content = text[begin : tag.start()].strip()
            yield unescape(content.removeprefix("<![CDATA[").removesuffix("]]>")).strip()
            begin = None


def _unpacked(body: bytes) -> bytes:
    if not body.startswith(b"\x1f\x8b"):
        return body
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        unpacked = unpacker.decompress(body, LARGEST)
    except zlib.error as error:
        raise Broken(f"it can't be unpacked: {error}") from None
    if unpacker.unconsumed_tail:
        raise Broken(f"it unpacks to more than {LARGEST:,} bytes")
    return unpacked
