"""Web addresses: the one spelling of each, and which of them belong to a crawl.

Parsing is the WHATWG URL Standard's, as browsers have it: letter case, default ports, dots, IDNA, odd spellings of IP
addresses. On top of that: no fragment, parameters in order, and none that only say where a visitor came from or who he
is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

import ada_url

LONGEST = 2_000  # characters
SCHEMES = {"http:", "https:"}
UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# Where a visitor came from, and who he is. The page is the same without them.
VISITOR = re.compile(
    r"utm_\w+|gclid|dclid|fbclid|msclkid|yclid|twclid|igshid|mc_[ce]id|_hsenc|_hsmi|ref_src|_ga|_gl"
    r"|phpsessid|jsessionid|aspsessionid\w*|cfid|cftoken|zenid|oscsid",
    re.IGNORECASE,
)
# These may as well name the talk of a conference: only what is as long as a secret is one.
PERHAPS_VISITOR = re.compile(
    r"(sid|session_?id)=(?=[a-z]*\d)(?=\d*[a-z])[a-z\d]{8,}|(sid|session_?id)=[\w,-]{16,}", re.IGNORECASE
)
IN_PATH = re.compile(r";jsessionid=[^/;?#]*", re.IGNORECASE)
ASP_SESSION = re.compile(r"/\([SAF]\([A-Za-z0-9]{20,}\)\)(?=/)")

ScopeKind = Literal["host", "path", "domain"]


class NotForUs(ValueError):
    """No address of a web page."""


@dataclass(frozen=True)
class Address:
    url: str  # the one spelling
    origin: str  # http://host:port
    host: str
    path: str
    asked: str = field(compare=False)  # the same, its parameters in the order in which they were found: some sites care

    @property
    def target(self) -> str:
        """Path and query, as they are asked for."""
        return self.asked.removeprefix(self.origin)

    @property
    def site(self) -> str:
        """http and https of a host are one site, asked by one crawl at a time, with one pause."""
        return self.origin.partition("//")[2]

    def __str__(self) -> str:
        return self.url


def parse(text: str, base: str | None = None) -> Address:
    """The address that this text means in a page at `base`, or NotForUs."""
    try:
        parts = ada_url.URL(text, base=base) if base else ada_url.URL(text)
    except (ValueError, UnicodeError):
        raise NotForUs(f"{text!r:.200} is no address") from None
    if parts.protocol not in SCHEMES or not parts.hostname:
        raise NotForUs(f"{text!r:.200} is no http or https address")
    if parts.username or parts.password:
        raise NotForUs("an address with a user name or password in it is not fetched")
    host = parts.hostname.rstrip(".")
    if not host or parts.port == "0":
        raise NotForUs(f"{text!r:.200} has no host")
    origin = f"{parts.protocol}//{host}{':' * bool(parts.port)}{parts.port}"
    path = ASP_SESSION.sub("", IN_PATH.sub("", escaped(parts.pathname))) or "/"
    query = list(filter(_kept, escaped(parts.search.removeprefix("?")).split("&")))
    asked, url = (
        f"{origin}{path}{'?' * bool(query)}{'&'.join(several)}" for several in (query, sorted(query, key=_name))
    )
    return Address(url, origin, host, path, asked)


def escaped(text: str) -> str:
    """One spelling of percent-encoded text: escape nothing that needs none, and write the rest in capitals."""

    def spelled(match: re.Match[str]) -> str:
        byte = int(match[1], 16)
        return chr(byte) if byte in UNRESERVED else match[0].upper()

    return re.sub("%([0-9a-fA-F]{2})", spelled, text)


def _name(parameter: str) -> str:
    """Parameters of the same name keep their order."""
    return parameter.partition("=")[0]


def _kept(parameter: str) -> bool:
    return bool(parameter) and not VISITOR.fullmatch(_name(parameter)) and not PERHAPS_VISITOR.fullmatch(parameter)


@dataclass
class Scope:
    """What belongs to a crawl: the host that it starts on, what lies below its start page, or also subdomains. Where
    the start page redirects, what it redirects to counts as a start page, too."""

    kind: ScopeKind
    starts: list[Address] = field(default_factory=list)

    def includes(self, address: Address) -> bool:
        return any(self._below(start, address) for start in self.starts)

    def _below(self, start: Address, address: Address) -> bool:
        if self.kind == "domain":
            root = start.host.removeprefix("www.")
            return address.host == root or address.host.endswith(f".{root}")
        if start.site != address.site:
            return False
        return self.kind == "host" or address.path.startswith(start.path.rpartition("/")[0] + "/")
