"""Fetches a page that a stranger named, and gives back its text.

The address may be a trap: a name that leads to this machine or its neighbours, a redirect there, a reply without end.
So each name is looked up once, all its addresses must be public, and the connection goes to one that was checked: a
second look-up could answer differently."""

from __future__ import annotations

import codecs
import re
import socket
from collections.abc import Iterator
from typing import Any

import httpx2
from selectolax.lexbor import LexborHTMLParser

from examples.addresses import is_public
from examples.claim_check.deadline import Connections, within

LONGEST_FETCH = 20.0  # seconds, with look-ups and redirects
CONNECT_TIMEOUT = 5.0  # seconds for one address
MOST_ADDRESSES = 3  # of one name that are tried
LARGEST_PAGE = 2_000_000  # bytes
REDIRECTS = 3
KINDS = ("text/html", "application/xhtml+xml", "text/plain")
HIDDEN = ["script", "style", "noscript", "template", "svg", "iframe", "object", "head"]
CHARSETS = re.compile(
    r"utf-(8|16|16-le|16-be)|ascii|iso8859-\d+|cp125\d|koi8-[ru]|shift_jis|euc_(jp|kr)|gb(k|2312|18030)|big5"
)
HEADERS = {
    "User-Agent": "claim-check (an example application)",
    "Accept": "text/html, application/xhtml+xml, text/plain;q=0.8",
    # A few compressed bytes can become gigabytes.
    "Accept-Encoding": "identity",
}


class PageRefused(Exception):
    """The page can't be judged. `permanent`: nor can it later."""

    def __init__(self, code: str, reason: str, permanent: bool = True) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason
        self.permanent = permanent


def page_text(url: str, allow_private: bool = False, longest: float = LONGEST_FETCH) -> str:
    """The text of this page, or PageRefused. `allow_private` is for tests, whose pages are on this machine."""
    try:
        return within(longest, lambda connections: _text(url, allow_private, connections))
    except TimeoutError:
        raise PageRefused("PAGE_TIMEOUT", f"{url:.200} took more than {longest:g} seconds", permanent=False) from None


def _text(url: str, allow_private: bool, connections: Connections) -> str:
    target = _parsed(url)
    for _ in range(1 + REDIRECTS):
        response, body = _fetched(target, allow_private, connections)
        if response.status_code not in (301, 302, 303, 307, 308):
            return _readable(target, response, body)
        try:
            target = _parsed(str(target.join(response.headers.get("location", ""))))
        except httpx2.InvalidURL as error:
            raise PageRefused("PAGE_ADDRESS", f"{target} redirects to no address: {error}") from None
    raise PageRefused("PAGE_REDIRECTS", f"{url:.200} redirects more than {REDIRECTS} times")


def _parsed(text: str) -> httpx2.URL:
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise PageRefused("PAGE_ADDRESS", f"{text!r:.200} is no address: {error}") from None
    if url.scheme not in ("http", "https") or not url.host or not 0 < (80 if url.port is None else url.port) < 65536:
        raise PageRefused("PAGE_ADDRESS", f"{text!r:.200} is no http or https address")
    if url.userinfo:
        raise PageRefused("PAGE_ADDRESS", "an address with a user name or password in it is not fetched")
    return url.copy_with(fragment=None)


def _fetched(url: httpx2.URL, allow_private: bool, connections: Connections) -> tuple[httpx2.Response, bytes]:
    """The answer to one request, from the first address that accepts a connection."""
    addresses = _addresses(url, allow_private)
    for n, address in enumerate(addresses, start=1):
        try:
            return _fetched_from(address, url, connections)
        except httpx2.TransportError as error:
            if n == len(addresses) or not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
                reason = f"{url.host:.200} can't be reached: {error or type(error).__name__}"
                raise PageRefused("PAGE_UNREACHABLE", reason, permanent=False) from None
    raise PageRefused("PAGE_NOT_FOUND", f"{url.host:.200} has no address")


def _addresses(url: httpx2.URL, allow_private: bool) -> list[str]:
    """What the name means now, looked up once. One address that is not public is enough to refuse it."""
    try:
        found = socket.getaddrinfo(url.raw_host.decode(), url.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, OverflowError) as error:
        later = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
        reason = f"the name {url.host:.200} can't be looked up: {error}"
        raise PageRefused("PAGE_NOT_FOUND", reason, permanent=not later) from None
    addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
    for address in addresses:
        if not allow_private and not is_public(address):
            raise PageRefused("PAGE_PRIVATE", f"{url.host:.200} leads to {address}, which is no public address")
    return addresses[:MOST_ADDRESSES]


def _fetched_from(address: str, url: httpx2.URL, connections: Connections) -> tuple[httpx2.Response, bytes]:
    """Connect to this address, and say the name that it was found under: in `Host`, and to TLS for its certificate."""
    request: dict[str, Any] = {
        "headers": {**HEADERS, "Host": url.netloc.decode()},
        "extensions": {"sni_hostname": url.raw_host.decode(), "trace": connections},
    }
    timeout = httpx2.Timeout(LONGEST_FETCH, connect=CONNECT_TIMEOUT)
    with (
        # No proxy and no password from the environment.
        httpx2.Client(trust_env=False, timeout=timeout) as client,
        client.stream("GET", url.copy_with(host=address), **request) as response,
    ):
        return response, b"".join(_limited(response)) if response.status_code == 200 else b""


def _limited(response: httpx2.Response) -> Iterator[bytes]:
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise PageRefused("PAGE_KIND", f"the page is sent compressed ({encoding:.40}), though we asked for it plain")
    size = 0
    for chunk in response.iter_raw():
        size += len(chunk)
        if size > LARGEST_PAGE:
            raise PageRefused("PAGE_TOO_LARGE", f"the page is larger than {LARGEST_PAGE:,} bytes")
        yield chunk


def _readable(url: httpx2.URL, response: httpx2.Response, body: bytes) -> str:
    status = response.status_code
    if status != 200:
        reason = f"{url.host:.200} answers {status}"
        raise PageRefused("PAGE_STATUS", reason, permanent=status < 500 and status not in (408, 425, 429))
    kind, _, _ = response.headers.get("content-type", "").partition(";")
    kind = kind.strip().lower()
    if kind not in KINDS:
        raise PageRefused("PAGE_KIND", f"the page is {kind[:60] or 'of no stated type'}, not HTML or plain text")
    source = body.decode(_charset(response, body), "replace")
    text = source if kind == "text/plain" else _visible(source)
    lines = (" ".join(line.split()) for line in text.replace("\0", "").splitlines())
    text = "\n".join(line for line in lines if line)
    if not text:
        raise PageRefused("PAGE_EMPTY", f"the page of {url.host:.200} has no text without running its scripts")
    return text


def _visible(html: str) -> str:
    """Title, description and text of a page."""
    tree = LexborHTMLParser(html)
    title = tree.css_first("title")
    description = tree.css_first('meta[name="description"]')
    head = [
        title.text() if title else "",
        (description.attributes.get("content") or "") if description else "",
    ]
    tree.strip_tags(HIDDEN)
    body = tree.body.text(separator="\n", strip=True) if tree.body else ""
    return "\n".join([*head, body])


def _charset(response: httpx2.Response, body: bytes) -> str:
    """As the header or the page itself names it. Not every codec of Python's is for text, so only those we know are."""
    if body.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    declared = re.search(rb"""<meta[^>]+charset\s*=\s*["']?([\w-]+)""", body[:2048], re.IGNORECASE)
    name = response.charset_encoding or (declared[1].decode() if declared else "utf-8")
    try:
        name = codecs.lookup(name).name
    except (LookupError, ValueError):
        return "utf-8"
    return name if CHARSETS.fullmatch(name) else "utf-8"
