"""One page as a server gave it: the replies that led to it, what is written in it, and the files that it loads."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field

import httpx2
from selectolax.lexbor import LexborHTMLParser, LexborNode

from examples.safe_http import Fetcher, Refused, Reply, web_address

HTML = ("text/html", "application/xhtml+xml")
MOST_REDIRECTS = 5
MOST_FILES = 60  # that one page loads, and that are looked at
DEEPEST = 3_000  # elements within each other; browsers stop at 512
MOST_ATTRIBUTES = 3_000
TAGS = re.compile(r"<(/?)([a-zA-Z][\w-]*+)([^>]*+)")
# Tags that are never closed, or need not be.
UNNESTED = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr",
    "p", "li", "dt", "dd", "tr", "td", "th", "option",
}  # fmt: skip
# What a page loads, and where it says so.
FILES = {"script[src]": "src", "link[rel~=stylesheet][href]": "href", "img[src]": "src"}


@dataclass(frozen=True)
class File:
    """A script, a style sheet or a picture."""

    reply: Reply | None  # None: it can't be had
    element: LexborNode
    too_large: bool = False


@dataclass(frozen=True)
class Page:
    chain: list[Reply]
    robots: Reply | None = None  # /robots.txt, if it is there
    sitemap: Reply | None = None
    files: list[File] = field(default_factory=list)

    @property
    def reply(self) -> Reply:
        return self.chain[-1]

    @property
    def url(self) -> httpx2.URL:
        return self.reply.url

    @property
    def headers(self) -> httpx2.Headers:
        return self.reply.headers

    @functools.cached_property
    def tree(self) -> LexborHTMLParser:
        return parsed(self.reply.text.replace("\0", "") if self.reply.kind in HTML else "")

    def all(self, selector: str) -> list[LexborNode]:
        return self.tree.css(selector)

    def first(self, selector: str) -> LexborNode | None:
        return self.tree.css_first(selector)

    def meta(self, name: str) -> LexborNode | None:
        """`<meta name=…>`, however the name is written."""
        return next((one for one in self.all("meta[name]") if said(one, "name").lower() == name), None)


def parsed(text: str) -> LexborHTMLParser:
    """Refused, if it is made to keep a parser busy: that takes time by the square of the depth, and of the attributes
    of one tag. Real pages are far from these limits."""
    depth = 0
    for tag in TAGS.finditer(text):
        if tag[2].lower() not in UNNESTED:
            depth = max(0, depth + (-1 if tag[1] else 1))
            if depth > DEEPEST:
                raise Refused("TOO_DEEP", f"the page nests its elements more than {DEEPEST:,} deep")
        if len(tag[3]) > MOST_ATTRIBUTES and len(tag[3].split()) > MOST_ATTRIBUTES:
            raise Refused("TOO_DEEP", f"the page has a tag with more than {MOST_ATTRIBUTES:,} attributes")
    return LexborHTMLParser(text)


def said(node: LexborNode, attribute: str) -> str:
    return (node.attributes.get(attribute) or "").strip()


def joined(base: httpx2.URL, reference: str) -> httpx2.URL | None:
    """The http or https address that a link means, without fragment; None: it means none."""
    try:
        return web_address(str(base.join(reference.strip())))
    except (Refused, httpx2.InvalidURL, ValueError, UnicodeError):
        return None


def base_of(page: Page) -> httpx2.URL:
    """What the links of a page are relative to."""
    base = page.first("base[href]")
    return (joined(page.url, said(base, "href")) if base is not None else None) or page.url


def same_site(one: httpx2.URL, other: httpx2.URL) -> bool:
    return (one.host, one.port) == (other.host, other.port)


def fetch_page(fetcher: Fetcher, url: str) -> Page:
    """The page, or Refused if it can't be had at all."""
    chain = fetcher.follow(web_address(url), MOST_REDIRECTS)
    bare = Page(chain)
    home = chain[-1].url.copy_with(raw_path=b"/")
    robots = _if_there(fetcher, home.join("/robots.txt"))
    sitemap = _if_there(fetcher, _sitemap_of(robots, home))
    return Page(chain, robots, sitemap, _files(fetcher, bare))


def _sitemap_of(robots: Reply | None, home: httpx2.URL) -> httpx2.URL:
    """As robots.txt names it, or where it usually is."""
    for line in robots.text.splitlines() if robots else ():
        name, _, value = line.partition(":")
        if name.strip().lower() == "sitemap" and (named := joined(home, value)):
            return named
    return home.join("/sitemap.xml")


def _if_there(fetcher: Fetcher, url: httpx2.URL) -> Reply | None:
    try:
        reply = fetcher.follow(url, MOST_REDIRECTS)[-1]
    except Refused:
        return None
    return reply if reply.status == 200 else None


def _files(fetcher: Fetcher, page: Page) -> list[File]:
    base = base_of(page)
    wanted: dict[httpx2.URL, LexborNode] = {}
    for selector, attribute in FILES.items():
        for node in page.all(selector):
            if (url := joined(base, said(node, attribute))) is not None and len(wanted) < MOST_FILES:
                wanted.setdefault(url, node)
    return [_file(fetcher, url, node) for url, node in wanted.items()]


def _file(fetcher: Fetcher, url: httpx2.URL, node: LexborNode) -> File:
    try:
        reply = fetcher.follow(url, MOST_REDIRECTS)[-1]
    except Refused as refused:
        return File(None, node, refused.code == "TOO_LARGE")
    return File(reply if reply.status == 200 else None, node)
