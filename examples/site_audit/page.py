"""One page as a server gave it: the replies that led to it, what is written in it, and the files that it loads."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import ada_url
import httpx2
from selectolax.lexbor import LexborHTMLParser, LexborNode

from examples.crawl import robots
from examples.safe_http import Fetcher, Refused, Reply, web_address

XHTML = "application/xhtml+xml"
HTML = ("text/html", XHTML)
ROBOT = "site-audit"  # our name in robots.txt
LARGEST = 10_000_000  # bytes of a page or a file
MOST_REDIRECTS = 5
MOST_FILES = 60  # that one page loads, and that are looked at
LONGEST_ELEMENT = 200  # characters
# What a page loads as soon as it is shown, and where it says so.
LOADED = {
    "script[src]": "src", "link[rel~=stylesheet][href]": "href", "iframe[src], frame[src]": "src",
    "img[src], source[src], video[src], audio[src], embed[src], track[src], input[type=image][src]": "src",
    "img[srcset], source[srcset]": "srcset", "video[poster]": "poster", "object[data]": "data",
}  # fmt: skip
# What it leads to.
LINKED = {"a[href], area[href], link[rel~=icon][href]": "href"}
FILES = {"script[src]": "src", "link[rel~=stylesheet][href]": "href", "img[src]": "src"}
REFRESH = re.compile(r"\s*[\d.]+[\s;,]++(?:url\s*=\s*)?[\"']?([^\"']+)", re.IGNORECASE)
# In XHTML each element may be written as <a/>; HTML knows that of none.
EMPTY = re.compile(
    r"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr)\b)([a-z][\w:-]*+)([^<>]*?)/>",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class File:
    """A script, a style sheet or a picture."""

    reply: Reply | None  # without its body; None: it can't be had
    element: str
    size: int = 0  # bytes of the body, unpacked
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
        """Only in the process of `reading.py`: a hostile page can make a parser take hours, and gigabytes."""
        text = self.reply.text.replace("\0", "") if self.reply.kind in HTML else ""
        return LexborHTMLParser(EMPTY.sub(r"<\1\2></\1>", text) if self.reply.kind == XHTML else text)

    def all(self, selector: str) -> list[LexborNode]:
        return self.tree.css(selector)

    def first(self, selector: str) -> LexborNode | None:
        return self.tree.css_first(selector)

    def meta(self, name: str) -> LexborNode | None:
        """`<meta name=…>`, however the name is written."""
        return next((one for one in self.all("meta[name]") if said(one, "name").lower() == name), None)

    @functools.cached_property
    def base(self) -> httpx2.URL:
        """What its links are relative to."""
        base = self.first("base[href]")
        return (joined(self.url, said(base, "href")) if base is not None else None) or self.url

    def references(self, places: Mapping[str, str]) -> Iterator[tuple[LexborNode, httpx2.URL]]:
        """The web addresses that it names in these places, and the elements that do."""
        for selector, attribute in places.items():
            for node in self.all(selector):
                written = said(node, attribute)
                for one in sources(written) if attribute == "srcset" else [written]:
                    if (url := joined(self.base, one)) is not None:
                        yield node, url

    @functools.cached_property
    def refresh(self) -> tuple[LexborNode, httpx2.URL] | None:
        """The address that it sends browsers on to, by itself. For those without scripts does not count."""
        for node in self.all("meta[http-equiv=refresh i]"):
            match = REFRESH.match(said(node, "content"))
            if match and not (node.parent is not None and node.parent.tag == "noscript"):
                url = joined(self.base, match[1])
                return None if url is None or url == self.url else (node, url)
        return None


def said(node: LexborNode, attribute: str) -> str:
    return (node.attributes.get(attribute) or "").strip()


def start_tag(node: LexborNode) -> str:
    some = [(name, value and value[:LONGEST_ELEMENT]) for name, value in list(node.attributes.items())[:8]]
    written = "".join(f' {name}="{value}"' if value is not None else f" {name}" for name, value in some)
    return f"<{node.tag}{written}>"


def joined(base: httpx2.URL, reference: str) -> httpx2.URL | None:
    """The http or https address that a link means to a browser, without fragment; None: it means none."""
    try:
        return web_address(ada_url.join_url(str(base), reference))
    except (Refused, ValueError, UnicodeError):
        return None


def sources(srcset: str) -> list[str]:
    """The addresses of a srcset. Commas separate them, and may be in them."""
    found: list[str] = []
    described = False  # until the comma behind "2x"
    for word in srcset.split():
        if described:
            _, comma, word = word.partition(",")
            described = not comma
        if word := word.lstrip(","):
            found.append(word.rstrip(","))
            described = not word.endswith(",")
    return found


def same_site(one: httpx2.URL, other: httpx2.URL) -> bool:
    """http and https are one site; with and without www. is, too."""
    return (one.host.removeprefix("www."), one.port) == (other.host.removeprefix("www."), other.port)


def rules_of(text: str) -> robots.Robots:
    """What this robots.txt forbids."""
    return robots.parse(text.encode(), ROBOT)


def files_of(reply: Reply) -> list[tuple[str, str]]:
    """The files that the page loads, and the elements that name them."""
    wanted: dict[str, str] = {}
    for node, url in Page([reply]).references(FILES):
        if len(wanted) < MOST_FILES:
            wanted.setdefault(str(url), start_tag(node))
    return list(wanted.items())


def names_of(reply: Reply, site: httpx2.URL) -> list[str]:
    """All that the page names of this site, each once."""
    page = Page([reply])
    named = [url for _, url in page.references(LINKED | LOADED)] + ([page.refresh[1]] if page.refresh else [])
    return list(dict.fromkeys(str(url) for url in named if same_site(url, site)))


def fetch_page(fetcher: Fetcher, url: str, files_of: Callable[[Reply], list[tuple[str, str]]]) -> Page:
    """The page, or Refused if it can't be had at all."""
    chain = fetcher.follow(web_address(url), MOST_REDIRECTS)
    home = chain[-1].url.copy_with(raw_path=b"/")
    robots = _if_there(fetcher, home.join("/robots.txt"))
    sitemap = _if_there(fetcher, _sitemap_of(robots, home))
    return Page(chain, robots, sitemap, [_file(fetcher, *file) for file in files_of(chain[-1])])


def _sitemap_of(robots: Reply | None, home: httpx2.URL) -> httpx2.URL:
    """As robots.txt names it, or where it usually is."""
    for line in robots.text.splitlines() if robots else ():
        name, _, value = line.partition(":")
        if name.strip().lower() == "sitemap" and (named := joined(home, value.strip())):
            return named
    return home.join("/sitemap.xml")


def _if_there(fetcher: Fetcher, url: httpx2.URL) -> Reply | None:
    """One that is too large to be read is there, too: without its body."""
    try:
        reply = fetcher.follow(url, MOST_REDIRECTS)[-1]
    except Refused as refused:
        return Reply(url, 200, httpx2.Headers(), b"", LARGEST, 0.0) if refused.code == "TOO_LARGE" else None
    return reply if reply.status == 200 else None


def _file(fetcher: Fetcher, url: str, element: str) -> File:
    try:
        reply = fetcher.follow(httpx2.URL(url), MOST_REDIRECTS)[-1]
    except Refused as refused:
        return File(None, element, too_large=refused.code == "TOO_LARGE")
    return File(replace(reply, body=b"") if reply.status == 200 else None, element, len(reply.body))
