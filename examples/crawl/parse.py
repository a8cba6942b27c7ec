"""What a page says: its title, and which addresses it leads to."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from selectolax.lexbor import LexborHTMLParser

from examples.crawl import urls
from examples.safe_http import Reply

HTML = {"text/html", "application/xhtml+xml"}
LINKS = {"a": "href", "area": "href", "frame": "src", "iframe": "src"}
LONGEST_TITLE = 500  # characters
REFRESH = re.compile(r"""^\s*[\d.]*\s*[;,]?\s*url\s*=\s*["']?(.+?)["']?\s*$""", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Page:
    title: str
    links: list[urls.Address]  # each once, in the order in which they come
    nofollow: bool  # the page asks crawlers not to follow them


def read(answer: Reply, url: str) -> Page:
    tree = LexborHTMLParser(_decoded(answer))
    base = url
    if (node := tree.css_first("base[href]")) is not None:
        try:
            base = urls.parse(node.attributes.get("href") or "", url).url
        except urls.NotForUs:
            base = url
    title = tree.css_first("title")
    found: dict[str, urls.Address] = {}
    for text in _targets(tree):
        try:
            address = urls.parse(text, base)
        except urls.NotForUs:
            continue
        if len(address.url) <= urls.LONGEST:
            found.setdefault(address.url, address)
    return Page(_clean(title.text() if title else ""), list(found.values()), _nofollow(tree))


def _targets(tree: LexborHTMLParser) -> list[str]:
    found = []
    for node in tree.css(", ".join(f"{tag}[{attribute}]" for tag, attribute in LINKS.items())):
        found.append(node.attributes.get(LINKS[node.tag or ""]) or "")
    for node in tree.css("meta[http-equiv]"):
        if (node.attributes.get("http-equiv") or "").strip().lower() == "refresh":
            match = REFRESH.match(node.attributes.get("content") or "")
            if match:
                found.append(match[1])
    return found


def _nofollow(tree: LexborHTMLParser) -> bool:
    for node in tree.css("meta[name][content]"):
        if (node.attributes.get("name") or "").strip().lower() in ("robots", "holdfast-crawl") and asks_nofollow(
            node.attributes.get("content") or ""
        ):
            return True
    return False


def asks_nofollow(directives: str) -> bool:
    return bool({"nofollow", "none"} & set(re.split(r"[\s,]+", directives.lower())))


def _decoded(answer: Reply) -> str:
    """UTF-16 says so by its mark."""
    for mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        if answer.body.startswith(mark):
            return answer.body.decode("utf-16", "replace")
    return answer.text


def _clean(text: str) -> str:
    return " ".join(text.replace("\0", "").split())[:LONGEST_TITLE]
