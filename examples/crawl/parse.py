"""What a page says: its title, and which addresses it leads to."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from urllib.parse import quote

from httpx2 import Headers
from selectolax.lexbor import LexborHTMLParser

from examples.crawl import urls
from examples.safe_http import Reply

NAME = "holdfast-crawl"
HTML = {"text/html", "application/xhtml+xml"}
HTML_BEGINS = re.compile(
    rb"\s*(<\?xml[^>]*>\s*)?(<!--|<(!doctype html|html|head|body|title|script|style|div|table|h1|p|a|b|br)[\s>])",
    re.IGNORECASE,
)
AGENT_BEFORE = re.compile(r"\s*(?!unavailable_after|max-snippet|max-image-preview|max-video-preview)([\w-]+)\s*:")
LINKS = {"a": "href", "area": "href", "frame": "src", "iframe": "src"}
LONGEST_TITLE = 500  # characters
REFRESH = re.compile(r"""^\s*[\d.]*\s*[;,]?\s*url\s*=\s*["']?(.+?)["']?\s*$""", re.IGNORECASE | re.DOTALL)


# A parser looks through the open elements at most tags: in a page of 100,000 nested ones that would take hours.
MOST_WORK = 100_000_000  # elements looked at
TAG = re.compile(r"<(/?)([a-zA-Z][^\s/<>]*)[^<>]*>")
CLOSE_THEMSELVES = {
    "a", "area", "base", "body", "br", "button", "col", "dd", "dt", "embed", "head", "hr", "html", "img", "input", "li",
    "link", "meta", "nobr", "optgroup", "option", "p", "param", "rp", "rt", "source", "tbody", "td", "tfoot", "th",
    "thead", "tr", "track", "wbr",
}  # fmt: skip
NEVER_EMPTY = {
    "article", "b", "blockquote", "center", "div", "dl", "em", "fieldset", "font", "form", "i", "main", "nav", "ol",
    "section", "small", "span", "strong", "table", "u", "ul",
}  # fmt: skip


class TooDeep(ValueError):
    """It is nested so deep that nobody could read it."""


@dataclass(frozen=True)
class Page:
    title: str
    links: list[urls.Address]  # each once, in the order in which they come
    nofollow: bool  # the page asks crawlers not to follow them


def read(answer: Reply, url: str) -> Page:
    """Or TooDeep."""
    text = _decoded(answer)
    _check_depth(text)
    tree = LexborHTMLParser(text)
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
            address = urls.parse(_query_in(answer.charset, text), base)
        except urls.NotForUs:
            continue
        if len(address.url) <= urls.LONGEST:
            found.setdefault(address.url, address)
    return Page(_clean(title.text() if title else ""), list(found.values()), _nofollow(tree))


def _check_depth(text: str) -> None:
    depth = work = 0
    for tag in TAG.finditer(text):
        name = tag[2].lower()
        if name in CLOSE_THEMSELVES:
            work += depth
        elif tag[1]:
            depth = max(0, depth - 1)
        elif name in NEVER_EMPTY or not tag[0].endswith("/>"):
            depth += 1
            work += depth
    if work > MOST_WORK:
        raise TooDeep("its elements are nested too deep")


def _targets(tree: LexborHTMLParser) -> list[str]:
    found = []
    for node in tree.css(", ".join(f"{tag}[{attribute}]" for tag, attribute in LINKS.items())):
        found.append(node.attributes.get(LINKS[node.tag or ""]) or "")
    for node in tree.css("meta[http-equiv]"):
        if (node.attributes.get("http-equiv") or "").strip().lower() == "refresh":
            match = REFRESH.match((node.attributes.get("content") or "")[: 2 * urls.LONGEST])
            if match:
                found.append(match[1])
    return found


def _nofollow(tree: LexborHTMLParser) -> bool:
    for node in tree.css("meta[name][content]"):
        if (node.attributes.get("name") or "").strip().lower() in ("robots", NAME) and asks_nofollow(
            node.attributes.get("content") or ""
        ):
            return True
    return False


def asks_nofollow(directives: str) -> bool:
    return bool({"nofollow", "none"} & set(re.split(r"[\s,]+", directives.lower())))


def header_asks_nofollow(headers: Headers) -> bool:
    """`X-Robots-Tag: nofollow`, or `holdfast-crawl: nofollow`; but `otherbot: nofollow` is for another."""
    for value in headers.get_list("x-robots-tag"):
        agent = AGENT_BEFORE.match(value.lower())
        if (agent is None or agent[1] == NAME) and asks_nofollow(value[agent.end() :] if agent else value):
            return True
    return False


def looks_like_html(body: bytes) -> bool:
    """For answers that don't say what they are."""
    return HTML_BEGINS.match(body[:1000].removeprefix(codecs.BOM_UTF8)) is not None


def _query_in(charset: str, text: str) -> str:
    """Browsers send what is not ASCII in a query in the encoding of the page, and UTF-8 in all else."""
    before, mark, query = text.partition("?")
    if not mark or query.isascii() or charset.startswith("utf"):
        return text
    sent = (c if c.isascii() else quote(c.encode(charset, "xmlcharrefreplace"), safe="") for c in query)
    return f"{before}?{''.join(sent)}"


def _decoded(answer: Reply) -> str:
    """UTF-16 says so by its mark."""
    for mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        if answer.body.startswith(mark):
            return answer.body.decode("utf-16", "replace")
    return answer.text


def _clean(text: str) -> str:
    return " ".join(text.replace("\0", "").split())[:LONGEST_TITLE]
