"""Sitemaps: lists of addresses, as XML or as text, perhaps compressed, perhaps lists of further lists."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from html import unescape

LARGEST = 52_428_800  # bytes of one file, unpacked
MOST = 50_000  # addresses of one file: what the protocol allows
LOCATION = re.compile(r"<(?:\w+:)?loc\b[^>]*>\s*(?:<!\[CDATA\[)?\s*(.*?)\s*(?:\]\]>)?\s*</(?:\w+:)?loc\s*>", re.DOTALL)
INDEX = re.compile(r"<(?:\w+:)?sitemapindex\b")
FEED_LINK = re.compile(
    r"<link>\s*(?:<!\[CDATA\[)?\s*(.*?)\s*(?:\]\]>)?\s*</link\s*>|<link\b[^>]*\bhref=[\"'](.*?)[\"']", re.DOTALL
)


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
    locations = [unescape(found) for found in LOCATION.findall(text)[:MOST]]
    if INDEX.search(text):
        return Sitemap(sitemaps=locations)
    if not locations:
        locations = [unescape(one or other) for one, other in FEED_LINK.findall(text)[:MOST]]
    if not locations and not re.search(r"<(?:\w+:)?(urlset|rss|feed)\b", text):
        raise Broken("it is neither a sitemap nor a feed")
    return Sitemap(pages=locations)


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
