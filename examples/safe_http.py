"""Fetches what strangers name.

The address may be a trap: a name that leads to this machine or its neighbours, a redirect there, a reply without end,
one that sends a byte a second, a few bytes that unpack to gigabytes. So each name is looked up once, all its addresses
must be public, and the connection goes to one that was checked: a second look-up could answer differently. Each request
has one limit for all that it waits for, and each reply a largest size, packed and unpacked."""

from __future__ import annotations

import codecs
import functools
import re
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import httpcore2
import httpx2

from examples.addresses import is_public

LONGEST_FETCH = 20.0  # seconds, with the look-up
CONNECT_TIMEOUT = 5.0  # seconds for one address
MOST_ADDRESSES = 3  # of one name that are tried
LARGEST = 2_000_000  # bytes
REDIRECTS = (301, 302, 303, 307, 308)
# Not every codec of Python's is for text, so only those we know are.
CHARSETS = re.compile(
    r"utf-(8|16|16-le|16-be)|ascii|iso8859-\d+|cp125\d|koi8-[ru]|shift_jis|euc_(jp|kr)|gb(k|2312|18030)|big5"
)
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
WRITTEN = re.compile(
    rb"""<meta[^>]+charset\s*=\s*["']?([\w-]+)|^\s*<\?xml[^>]+encoding\s*=\s*["']([\w-]+)""", re.IGNORECASE
)

Wanted = Callable[[httpx2.Headers], bool]


class Refused(Exception):
    """It is not fetched, or not to its end. `permanent`: nor can it be later."""

    def __init__(self, code: str, reason: str, permanent: bool = True) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason
        self.permanent = permanent


@dataclass(frozen=True)
class Reply:
    url: httpx2.URL
    status: int
    headers: httpx2.Headers
    body: bytes  # unpacked
    sent: int  # bytes of the body as they came
    seconds: float  # until its end

    @property
    def leads_to(self) -> str | None:
        """Where a redirect points to, as it says."""
        return self.headers.get("location", "") if self.status in REDIRECTS else None

    @property
    def kind(self) -> str:
        """What the header calls it, as in text/html."""
        return kind_of(self.headers)

    @property
    def text(self) -> str:
        """Decoded as browsers do it."""
        return self.body.decode(self.charset, "replace")

    @functools.cached_property
    def charset(self) -> str:
        """As the header or the page itself names it. Where neither does, it is UTF-8, or else from another age."""
        for mark, name in MARKS.items():
            if self.body.startswith(mark):
                return name
        said = re.search(r"""charset\s*=\s*["']?([\w-]+)""", self.headers.get("content-type", ""), re.IGNORECASE)
        written = WRITTEN.search(self.body[:2048])
        try:
            name = codecs.lookup(said[1] if said else (written[1] or written[2]).decode() if written else "").name
        except (LookupError, ValueError):
            name = ""
        if name.startswith("utf-16") and not said:
            return "utf-8"  # what could be read so far says that it is not
        if name in ("iso8859-1", "ascii"):
            return "cp1252"
        if CHARSETS.fullmatch(name):
            return name
        try:
            self.body.decode()
        except UnicodeDecodeError as error:
            return "utf-8" if error.end == len(self.body) else "cp1252"
        return "utf-8"


def kind_of(headers: httpx2.Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def web_address(text: str) -> httpx2.URL:
    """An http or https URL without fragment, in one spelling, or Refused."""
    try:
        url = httpx2.URL(text)
        host = url.host  # decoded
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise Refused("ADDRESS", f"{text!r:.200} is not an address: {error!s:.200}") from None
    if url.scheme not in ("http", "https") or not host or not 0 < (80 if url.port is None else url.port) < 65536:
        raise Refused("ADDRESS", f"{text!r:.200} is not an http or https address")
    if url.userinfo:
        raise Refused("ADDRESS", "an address with a user name or password in it is not fetched")
    return url.copy_with(fragment=None, raw_path=url.raw_path)  # which begins with a slash, as written or not


@functools.cache
def default_tls() -> ssl.SSLContext:
    return ssl.create_default_context()


class Fetcher:
    """Keeps connections open between requests, for any number of threads. It sends no cookie, and takes no proxy and no
    password from the environment."""

    def __init__(
        self, user_agent: str, *, allow_private: bool = False, longest: float = LONGEST_FETCH, largest: int = LARGEST,
        compressed: bool = False, cut: bool = False, tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        """`cut`: a reply that is too large is read as far as `largest`, instead of being refused."""
        self._headers = {"User-Agent": user_agent, "Accept-Encoding": "gzip" if compressed else "identity"}
        self._longest = longest
        self._largest = largest
        self._compressed = compressed
        self._cut = cut
        self.network = SafeNetwork(allow_private)
        self._pool = httpcore2.ConnectionPool(ssl_context=tls or default_tls(), network_backend=self.network)

    def get(self, url: httpx2.URL, method: str = "GET", *, body: bool | Wanted = True, **headers: str) -> Reply:
        """One request, no redirect followed. `body=False`: what is in the reply is not wanted; or its headers say."""
        self.network.deadline = time.monotonic() + self._longest
        return self._get(url, method, body if callable(body) else lambda found: body, headers)

    def follow(
        self, url: httpx2.URL, most: int, *, kinds: Collection[str] | None = None, **headers: str
    ) -> list[Reply]:  # fmt: skip
        """The reply, behind those that redirected to it; `most` of these. They have one limit together. `kinds`: what
        is of another content type is not read."""

        def wanted(found: httpx2.Headers) -> bool:
            return kinds is None or kind_of(found) in kinds

        self.network.deadline = time.monotonic() + self._longest
        chain = [self._get(url, "GET", wanted, headers)]
        while (location := chain[-1].leads_to) is not None:
            if len(chain) > most:
                raise Refused("REDIRECTS", f"{url!s:.200} redirects more than {most} times")
            chain.append(self._get(redirected(chain[-1].url, location), "GET", wanted, headers))
        return chain

    def _get(self, url: httpx2.URL, method: str, wanted: Wanted, headers: dict[str, str]) -> Reply:
        began = time.monotonic()
        sent = {**self._headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        address = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        try:
            with self._pool.stream(method, address, headers=list(sent.items())) as response:
                found = httpx2.Headers(response.headers)  # bytes: it sees which encoding they are in
                reads = response.status not in REDIRECTS and wanted(found)
                packed = self._read(url, response.iter_stream()) if reads else b""
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            if time.monotonic() >= self.network.deadline:
                reason = f"{url!s:.200} took more than {self._longest:g} seconds"
                raise Refused("TIMEOUT", reason, permanent=False) from None
            reason = f"{url.host:.200} can't be reached: {error or type(error).__name__}"
            raise Refused("UNREACHABLE", reason, permanent=False) from None
        return Reply(
            url, response.status, found, self._unpacked(url, found, packed), len(packed), time.monotonic() - began
        )

    def close(self) -> None:
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, url: httpx2.URL, chunks: Iterable[bytes]) -> bytes:
        parts: list[bytes] = []
        size = 0
        for chunk in chunks:
            size += len(chunk)
            parts.append(chunk)
            if size > self._largest and self._cut:
                break
            if size > self._largest:
                raise Refused("TOO_LARGE", f"{url!s:.200} is larger than {self._largest:,} bytes")
        return b"".join(parts)[: self._largest]

    def _unpacked(self, url: httpx2.URL, headers: httpx2.Headers, packed: bytes) -> bytes:
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding == "identity" or not packed:
            return packed
        if encoding not in ("gzip", "x-gzip") or not self._compressed:
            raise Refused("KIND", f"{url!s:.200} is sent compressed ({encoding:.40}), though nobody asked for that")
        unpacking = zlib.decompressobj(31)
        try:
            body = unpacking.decompress(packed, self._largest + 1)
        except zlib.error as error:
            raise Refused("KIND", f"{url!s:.200} can't be unpacked: {error}") from None
        if self._cut:
            return body[: self._largest]
        if len(body) > self._largest:
            raise Refused("TOO_LARGE", f"{url!s:.200} unpacks to more than {self._largest:,} bytes")
        if not unpacking.eof:
            raise Refused("UNREACHABLE", f"what {url!s:.200} sent ends before its end", permanent=False)
        return body


def redirected(source: httpx2.URL, location: str) -> httpx2.URL:
    try:
        return web_address(str(source.join(location)))
    except httpx2.InvalidURL as error:
        raise Refused("ADDRESS", f"{source!s:.200} redirects to no address: {error}") from None


class SafeNetwork(httpcore2.NetworkBackend):
    """Connects to public addresses only, unless told otherwise. Whatever a thread waits for ends at its `deadline`."""

    def __init__(self, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._own = threading.local()

    @property
    def deadline(self) -> float:
        return float(self._own.deadline)

    @deadline.setter
    def deadline(self, at: float) -> None:
        self._own.deadline = at

    def left(self, most: float | None = None) -> float:
        """Seconds until the deadline, or `most`."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise httpcore2.ReadTimeout("the time is over")
        return left if most is None else min(left, most)

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:  # fmt: skip
        addresses = self._addresses(host, port)
        for address in addresses[:-1]:
            try:
                return self._connected(address, port)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return self._connected(addresses[-1], port)

    def _connected(self, address: str, port: int) -> httpcore2.NetworkStream:
        stream = httpcore2.SyncBackend().connect_tcp(address, port, timeout=self.left(CONNECT_TIMEOUT))
        return _Stream(stream, self)

    def _addresses(self, host: str, port: int) -> list[str]:
        """What the name means now, looked up once. One address that is not public is enough to refuse it."""
        addresses = _looked_up(host, port, self.left())
        for address in addresses:
            if not self._allow_private and not is_public(address):
                raise Refused("PRIVATE", f"{host:.200} leads to {address}, which is not a public address")
        if not addresses:
            raise Refused("NOT_FOUND", f"{host:.200} has no address")
        return addresses[:MOST_ADDRESSES]


def _looked_up(host: str, port: int, seconds: float) -> list[str]:
    """On a thread of its own, for it has no time limit. Not an executor's: Python waits for those before it exits."""
    found: list[str] = []
    errors: list[BaseException] = []

    def look() -> None:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.extend(dict.fromkeys(str(address[0]) for *_, address in entries))
        except BaseException as error:  # noqa: BLE001 - judged where it is waited for
            errors.append(error)

    thread = threading.Thread(target=look, name="look-up", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise httpcore2.ConnectTimeout(f"nobody says where {host:.200} is")
    for error in errors:
        if not isinstance(error, OSError | UnicodeError | OverflowError):
            raise error
        later = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
        reason = f"the name {host:.200} can't be looked up: {error}"
        raise Refused("NOT_FOUND", reason, permanent=not later) from None
    return found


class _Stream(httpcore2.NetworkStream):
    """A connection, each of whose waits ends at the deadline of whoever waits."""

    def __init__(self, stream: httpcore2.NetworkStream, network: SafeNetwork) -> None:
        self._stream = stream
        self._network = network

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._network.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._network.left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, self._network.left(timeout)), self._network)

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)
