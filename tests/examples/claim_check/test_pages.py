"""Pages that strangers name: what is fetched, what is refused, and that nothing is connected to that was refused.

Every connection of this process is seen by an audit hook. Those that would leave this machine end there."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from examples import safe_http
from examples.addresses import is_public
from examples.claim_check import pages
from examples.claim_check.pages import PageRefused, page_text

Resolver = Callable[[str], list[str]]
PAGE = """<!doctype html><html><head><title>The  Cure</title><meta name="description" content="Cures all">
<style>p { color: red }</style></head><body><script>track()</script><h1>Buy&nbsp;now</h1>
<p>Only <b>today</b>: 5&nbsp;€</p><noscript>no script</noscript><template>later</template></body></html>"""

_connections: list[tuple[str, int]] | None = None


def _watch(event: str, details: tuple[Any, ...]) -> None:
    if event == "socket.connect" and _connections is not None and isinstance(details[1], tuple):
        address = details[1][:2]
        _connections.append(address)
        if not address[0].startswith("127."):
            raise ConnectionRefusedError(f"{address} is not on this machine")


sys.addaudithook(_watch)  # it can't be taken away again


@pytest.fixture
def connections() -> Iterator[list[tuple[str, int]]]:
    """What this process connects to, from now on."""
    global _connections
    _connections = []
    yield _connections
    _connections = None


class Site(ThreadingHTTPServer):
    """Answers at `url` with what is in `pages`: path -> what to send, whole."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.pages: dict[str, bytes | Callable[[Any], None]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.closing = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def page(
        self, path: str, body: str | bytes = PAGE, kind: str = "text/html; charset=utf-8", status: str = "200 OK",
        **headers: str,
    ) -> str:  # fmt: skip
        body = body.encode() if isinstance(body, str) else body
        lines = {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close", **headers}
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
        head = f"HTTP/1.1 {status}\r\n{head}"
        self.pages[path] = head.encode() + b"\r\n" + body
        return self.url + path

    def redirect(self, path: str, location: str, status: str = "302 Found") -> str:
        return self.page(path, b"", status=status, Location=location)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # whoever asked has left
            super().handle_error(request, client_address)


class _Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Site)
        self.server.requests.append((self.path, dict(self.headers)))
        answer = self.server.pages[self.path]
        if callable(answer):
            answer(self)
        else:
            self.wfile.write(answer)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read the requests, and not a log."""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield site
    site.closing.set()
    site.shutdown()
    site.server_close()


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Names mean what a test says: each look-up takes the next of the addresses, the last one stays. Returns the list
    of the names that were looked up. Numbers are looked up as ever."""
    real = socket.getaddrinfo
    looked_up: list[str] = []

    def build(**answers: list[list[str]]) -> list[str]:
        def getaddrinfo(host: Any, port: Any, *args: Any, **options: Any) -> Any:
            name = str(host).replace(".", "_")
            if name not in answers:
                return real(host, port, *args, **options)
            looked_up.append(str(host))
            found = answers[name].pop(0) if len(answers[name]) > 1 else answers[name][0]
            return [entry for address in found for entry in real(address, port, *args, **options)]

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
        return looked_up

    return build


def refused(url: str, allow_private: bool = False, **options: float) -> PageRefused:
    with pytest.raises(PageRefused) as error:
        page_text(url, allow_private, **options)
    return error.value


# What is read


def test_the_text_of_a_page_is_what_a_reader_sees(site: Site) -> None:
    text = page_text(site.page("/"), allow_private=True)
    assert text.split("\n") == ["The Cure", "Cures all", "Buy now", "Only", "today", ": 5 €"]


def test_lines_are_kept_and_space_is_not(site: Site) -> None:
    url = site.page("/a", "a \t b\r\n\r\n\0c\n", "text/plain")
    assert page_text(url, allow_private=True) == "a b\nc"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("é".encode(), "text/plain; charset=utf-8"),
        ("é".encode(), "text/plain"),
        ("é".encode("latin-1"), "text/plain; charset=ISO-8859-1"),
        ("é".encode("cp1252"), 'text/plain; charset="windows-1252"'),
        ("é".encode("utf-16"), "text/plain; charset=utf-16"),
        ("é".encode("utf-8-sig"), "text/plain; charset=latin-1"),
        ("é".encode(), "text/plain; charset=punycode"),
        ("é".encode(), "text/plain; charset=hex"),
        ("é".encode(), "text/plain; charset=no-such"),
        ("é".encode(), "TEXT/PLAIN ;charset=UTF8"),
        ("<meta charset=latin-1>é".encode("latin-1"), "text/html"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=iso-8859-15">é'.encode("latin-1"), "text/html"),
        ("<p>é".encode(), "application/xhtml+xml"),
    ],
)
def test_the_characters_of_a_page(site: Site, body: bytes, kind: str) -> None:
    assert page_text(site.page("/", body, kind), allow_private=True) == "é"


def test_a_server_is_told_the_name_and_not_asked_to_compress(site: Site, resolver: Callable[..., list[str]]) -> None:
    site.page("/a?b=c")
    resolver(shop_example=[["127.0.0.1"]])
    page_text(f"http://shop.example:{site.server_port}/a?b=c#part", allow_private=True)
    [(path, headers)] = site.requests
    assert path == "/a?b=c"
    assert headers["Host"] == f"shop.example:{site.server_port}"
    assert headers["Accept-Encoding"] == "identity"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of shop.example, with its key, signed by itself."""
    if not (openssl := shutil.which("openssl")):
        pytest.skip("openssl makes the certificate, and it is not installed")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    request = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=shop.example -addext subjectAltName=DNS:shop.example"
    subprocess.run(
        [openssl, *request.split(), "-keyout", path, "-out", f"{path}.cert"], check=True, capture_output=True
    )
    path.write_text(path.read_text() + Path(f"{path}.cert").read_text())
    return path


@pytest.mark.parametrize(("name", "reads"), [("shop.example", True), ("other.example", False)])
def test_a_certificate_is_for_the_name_and_not_for_the_address(
    name: str,
    reads: bool,
    site: Site,
    certificate: Path,
    resolver: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate)
    told: list[str | None] = []
    server.sni_callback = lambda connection, name, context: told.append(name)
    site.socket = server.wrap_socket(site.socket, server_side=True)
    trusted = ssl.create_default_context(cafile=certificate)
    monkeypatch.setattr(safe_http, "default_tls", lambda: trusted)
    site.page("/")
    resolver(shop_example=[["127.0.0.1"]], other_example=[["127.0.0.1"]])
    url = f"https://{name}:{site.server_port}/"
    if reads:
        assert page_text(url, allow_private=True)
    else:
        failed = refused(url, allow_private=True)
        assert (failed.code, "certificate" in failed.reason) == ("PAGE_UNREACHABLE", True)
    assert told == [name]


def test_proxies_and_passwords_of_the_environment_are_not_used(
    site: Site, monkeypatch: pytest.MonkeyPatch, connections: list[tuple[str, int]]
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    page_text(site.page("/"), allow_private=True)
    assert connections == [("127.0.0.1", site.server_port)]


def test_redirects_are_followed_three_times(site: Site) -> None:
    site.page("/3")
    for n in range(3):
        site.redirect(f"/{n}", f"{n + 1}", ["301 Moved", "302 Found", "308 Moved"][n])
    assert page_text(site.url + "/0", allow_private=True)
    site.redirect("/more", "/0")
    assert refused(site.url + "/more", allow_private=True).code == "PAGE_REDIRECTS"


def test_the_next_address_is_tried_if_one_does_not_answer(site: Site, resolver: Callable[..., list[str]]) -> None:
    site.page("/")
    resolver(shop_example=[["127.0.0.9", "127.0.0.1"]])
    assert page_text(f"http://shop.example:{site.server_port}/", allow_private=True)


# What is refused

ADDRESSES = [
    "file:///etc/passwd",
    "ftp://example.org/",
    "gopher://example.org/",
    "javascript:alert(1)",
    "//example.org/",
    "example.org",
    "",
    "http://",
    "http:///a",
    "http://a:99999/",
    "http://a:0/",
    "http://a\x00b/",
    "http://someone@example.org/",
    "http://someone:secret@example.org/",
    "http://example.org@127.0.0.1/",
    "http://example.org:80@127.0.0.1/",
    "http://example.org\\@127.0.0.1/",
    "http://[::1/",
]
PRIVATE = [
    "127.0.0.1", "127.1", "0x7f.1", "0x7f000001", "2130706433", "127\u30020\u30020\u30021", "localhost", "0", "0.0.0.0",
    "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "169.254.169.254", "172.16.0.1", "172.31.255.255",
    "192.0.0.1", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "[::]", "[::1]",
    "[::127.0.0.1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:169.254.169.254]", "[::ffff:8.8.8.8]",
    "[64:ff9b::7f00:1]", "[64:ff9b:1::1]", "[100::1]", "[2001::1]", "[2001:db8::1]", "[2002:7f00:1::]", "[3fff::1]",
    "[5f00::1]", "[fc00::1]", "[fd00:ec2::254]", "[fe80::1]", "[fec0::1]", "[ff02::1]",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "100.128.0.1", "172.32.0.1", "192.0.3.1", "2606:4700::1111", "2a00::1"]


@pytest.mark.parametrize("url", ADDRESSES)
def test_what_is_no_plain_web_address(url: str, connections: list[tuple[str, int]]) -> None:
    failed = refused(url)
    assert (failed.code, failed.permanent) == ("PAGE_ADDRESS", True)
    assert "secret" not in str(failed)
    assert connections == []


@pytest.mark.parametrize("host", PRIVATE)
@pytest.mark.parametrize("form", ["http://{}/", "https://{}:8443/latest/meta-data/"])
def test_what_leads_to_this_machine_or_its_neighbours(host: str, form: str, connections: list[tuple[str, int]]) -> None:
    failed = refused(form.format(host))
    assert (failed.code, failed.permanent) == ("PAGE_PRIVATE", True)
    assert connections == []


@pytest.mark.parametrize("host", ["0177.0.0.1", "127.0.0.1.", "\u2460\u2461\u2466.0.0.1", "1.1.1.1.1", "a..b"])
def test_what_is_no_name_and_no_number(host: str, connections: list[tuple[str, int]]) -> None:
    assert refused(f"http://{host}/").code in ("PAGE_ADDRESS", "PAGE_NOT_FOUND", "PAGE_PRIVATE")
    assert connections == []


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["2606:4700::1111", "::ffff:10.0.0.1"]])
def test_a_name_with_one_private_address(
    addresses: list[str], resolver: Callable[..., list[str]], connections: list[tuple[str, int]]
) -> None:
    looked_up = resolver(shop_example=[addresses])
    assert refused("http://shop.example/").code == "PAGE_PRIVATE"
    assert (looked_up, connections) == (["shop.example"], [])


def test_a_name_that_means_something_else_when_looked_up_again(
    site: Site, resolver: Callable[..., list[str]], connections: list[tuple[str, int]]
) -> None:
    """The connection goes to what was checked; here it ends at the hook, which lets nothing leave this machine."""
    site.page("/")
    looked_up = resolver(shop_example=[["8.8.8.8"], ["127.0.0.1"]])
    failed = refused(f"http://shop.example:{site.server_port}/")
    assert failed.code == "PAGE_UNREACHABLE"
    assert connections == [("8.8.8.8", site.server_port)]
    assert (looked_up, site.requests) == (["shop.example"], [])


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("http://169.254.169.254/latest/meta-data/", "PAGE_PRIVATE"),
        ("//169.254.169.254/", "PAGE_PRIVATE"),
        ("http://[::ffff:169.254.169.254]/", "PAGE_PRIVATE"),
        ("http://0x7f.1/", "PAGE_PRIVATE"),
        ("http://name:word@shop.example/", "PAGE_ADDRESS"),
        ("file:///etc/passwd", "PAGE_ADDRESS"),
        ("http://a:b/", "PAGE_ADDRESS"),
    ],
)
def test_a_redirect_is_checked_like_the_first_address(
    site: Site, resolver: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch,
    connections: list[tuple[str, int]], location: str, code: str,
) -> None:  # fmt: skip
    """The site's own address counts as public here."""
    monkeypatch.setattr(safe_http, "is_public", lambda address: address == "127.0.0.2" or is_public(address))
    resolver(shop_example=[["127.0.0.2"]])
    real_connect = socket.create_connection

    def connect(address: tuple[str, int], *args: Any, **options: Any) -> socket.socket:
        assert address == ("127.0.0.2", 80)
        return real_connect(("127.0.0.1", site.server_port), *args, **options)

    monkeypatch.setattr(socket, "create_connection", connect)
    site.redirect("/", location)
    assert refused("http://shop.example/").code == code
    assert [path for path, _ in site.requests] == ["/"]
    assert connections == [("127.0.0.1", site.server_port)]


@pytest.mark.parametrize(
    ("status", "permanent"),
    [("404 Not Found", True), ("403 Forbidden", True), ("500 Broken", False), ("503 Busy", False), ("429 Slow", False)],
)
def test_a_page_that_is_not_there(site: Site, status: str, permanent: bool) -> None:
    failed = refused(site.page("/", status=status), allow_private=True)
    assert (failed.code, failed.permanent) == ("PAGE_STATUS", permanent)
    assert status[:3] in failed.reason


@pytest.mark.parametrize("kind", ["application/pdf", "image/png", "application/json", "text/html2", ""])
def test_what_is_no_page(site: Site, kind: str) -> None:
    failed = refused(site.page("/", kind=kind), allow_private=True)
    assert (failed.code, failed.permanent) == ("PAGE_KIND", True)


@pytest.mark.parametrize("body", ["", "<script>render()</script>", "<p> &nbsp; </p>"])
def test_a_page_without_text(site: Site, body: str) -> None:
    assert refused(site.page("/", body), allow_private=True).code == "PAGE_EMPTY"


def test_a_compressed_page_is_not_unpacked(site: Site) -> None:
    assert refused(site.page("/", Content_Encoding="gzip"), allow_private=True).code == "PAGE_KIND"


def test_a_page_has_a_largest_size(site: Site) -> None:
    assert page_text(site.page("/", "x" * pages.LARGEST_PAGE, "text/plain"), allow_private=True)
    failed = refused(site.page("/", "x" * (pages.LARGEST_PAGE + 1), "text/plain"), allow_private=True)
    assert (failed.code, failed.permanent) == ("PAGE_TOO_LARGE", True)


def test_no_more_is_read_than_the_largest_size(site: Site) -> None:
    sent = []

    def endless(request: Any) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while not site.closing.is_set():
            sent.append(request.wfile.write(b"x" * 65536))

    site.pages["/"] = endless
    assert refused(site.url + "/", allow_private=True).code == "PAGE_TOO_LARGE"
    assert sum(sent) < 20 * pages.LARGEST_PAGE, "buffers of the connection, and not all there is"


def answers_slowly(beginning: bytes, again: bytes) -> Callable[[Any], None]:
    def answer(request: Any) -> None:
        request.wfile.write(beginning)
        while not request.server.closing.wait(0.05):
            request.wfile.write(again)

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        lambda request: request.server.closing.wait(),
        answers_slowly(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", b"x"),
        answers_slowly(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
        answers_slowly(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["silent", "byte by byte", "header without end", "interim answers without end"],
)
def test_a_page_has_one_limit_for_all_of_it(site: Site, answer: Callable[[Any], None]) -> None:
    site.pages["/"] = answer
    began = time.monotonic()
    failed = refused(site.url + "/", allow_private=True, longest=0.4)
    assert (failed.code, failed.permanent) == ("PAGE_TIMEOUT", False)
    assert time.monotonic() - began >= 0.4


def test_a_name_that_is_never_found_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def getaddrinfo(*_: Any, **__: Any) -> Any:
        answered.wait()
        raise socket.gaierror(socket.EAI_NONAME, "not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert refused("http://shop.example/", longest=0.2).code == "PAGE_TIMEOUT"
    answered.set()


@pytest.mark.parametrize(("error", "permanent"), [(socket.EAI_NONAME, True), (socket.EAI_AGAIN, False)])
def test_a_name_that_is_not_found(monkeypatch: pytest.MonkeyPatch, error: int, permanent: bool) -> None:
    def getaddrinfo(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(error, "not found")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    failed = refused("http://shop.example/")
    assert (failed.code, failed.permanent) == ("PAGE_NOT_FOUND", permanent)


def test_a_server_that_is_not_there(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    failed = refused(f"http://127.0.0.1:{port}/", allow_private=True)
    assert (failed.code, failed.permanent) == ("PAGE_UNREACHABLE", False)


def test_a_page_that_breaks_off(site: Site) -> None:
    site.page("/")
    whole = site.pages["/"]
    assert isinstance(whole, bytes)
    site.pages["/"] = whole[:-20]
    failed = refused(site.url + "/", allow_private=True)
    assert (failed.code, failed.permanent) == ("PAGE_UNREACHABLE", False)


def test_a_handshake_that_never_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"https://127.0.0.1:{server.getsockname()[1]}/"
        assert refused(url, allow_private=True, longest=0.3).code == "PAGE_TIMEOUT"
