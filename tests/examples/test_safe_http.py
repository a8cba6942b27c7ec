"""What strangers may send: compressed bombs, files without end, connections that are kept. Addresses, redirects and
time limits are tried in claim_check/test_pages.py, through the same code."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator

import httpx2
import pytest

from examples.safe_http import Fetcher, Refused
from tests.examples.site_audit.sites import Sites

LARGEST = 1_000_000
PACKED = {"Content-Encoding": "gzip"}


@pytest.fixture
def sites() -> Iterator[Sites]:
    with Sites() as sites:
        yield sites


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    with Fetcher("test", allow_private=True, largest=LARGEST, longest=5.0, compressed=True) as fetcher:
        yield fetcher


def code(fetcher: Fetcher, url: str) -> str:
    with pytest.raises(Refused) as refused:
        fetcher.follow(httpx2.URL(url), 3)
    return refused.value.code


def test_a_compressed_page_is_unpacked_and_weighed_as_it_came(fetcher: Fetcher, sites: Sites) -> None:
    packed = gzip.compress(b"bread " * 10_000)
    [reply] = fetcher.follow(httpx2.URL(sites.page("/", packed, headers=PACKED)), 3)
    assert (reply.text, reply.sent) == ("bread " * 10_000, len(packed))


def test_a_compressed_bomb_is_refused_before_it_takes_space(fetcher: Fetcher, sites: Sites) -> None:
    packing = zlib.compressobj(9, wbits=31)
    zeros = bytes(1_000_000)
    bomb = b"".join(packing.compress(zeros) for _ in range(500)) + packing.flush()
    assert len(bomb) < LARGEST
    assert code(fetcher, sites.page("/", bomb, headers=PACKED)) == "TOO_LARGE"


def test_one_that_is_just_small_enough_is_not(fetcher: Fetcher, sites: Sites) -> None:
    url = sites.page("/", gzip.compress(bytes(LARGEST)), headers=PACKED)
    assert len(fetcher.follow(httpx2.URL(url), 3)[-1].body) == LARGEST
    assert code(fetcher, sites.page("/more", gzip.compress(bytes(LARGEST + 1)), headers=PACKED)) == "TOO_LARGE"


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "deflate", "nonsense"])
def test_what_nobody_asked_for_is_refused(fetcher: Fetcher, sites: Sites, encoding: str) -> None:
    assert code(fetcher, sites.page("/", b"x", headers={"Content-Encoding": encoding})) == "KIND"


def test_what_is_not_packed_though_it_says_so_is_refused(fetcher: Fetcher, sites: Sites) -> None:
    assert code(fetcher, sites.page("/", b"plain", headers=PACKED)) == "KIND"


def test_what_is_of_another_kind_is_not_read(fetcher: Fetcher, sites: Sites) -> None:
    url = sites.page("/", b"x" * (LARGEST + 1), headers={"Content-Type": "video/mp4"})
    [reply] = fetcher.follow(httpx2.URL(url), 3, kinds=("text/html",))
    assert (reply.status, reply.body, reply.kind) == (200, b"", "video/mp4")
    assert code(fetcher, url) == "TOO_LARGE"


UMLAUTS = "<p>Bäckerei “Müller”</p>"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (UMLAUTS.encode(), "text/html"),
        (UMLAUTS.encode("cp1252"), "text/html"),
        (UMLAUTS.encode("cp1252"), "text/html; charset=iso-8859-1"),
        (UMLAUTS.encode("utf-16"), "text/html"),
        (b"\xfe\xff" + UMLAUTS.encode("utf-16-be"), "text/html; charset=utf-8"),
        (b"<META CHARSET=windows-1252>" + UMLAUTS.encode("cp1252"), "text/html"),
        (b"<meta charset='utf-16'>" + UMLAUTS.encode(), "text/html"),
        (b"<?xml version='1.0' encoding='windows-1252'?>" + UMLAUTS.encode("cp1252"), "application/xhtml+xml"),
    ],
)
def test_a_page_is_decoded_as_browsers_do_it(fetcher: Fetcher, sites: Sites, body: bytes, kind: str) -> None:
    [reply] = fetcher.follow(httpx2.URL(sites.page("/", body, headers={"Content-Type": kind})), 3)
    assert reply.text.endswith(UMLAUTS)


@pytest.mark.parametrize("location", ["/Bäckerei".encode(), "/Bäckerei".encode("latin-1")])
def test_headers_may_hold_any_character(fetcher: Fetcher, sites: Sites, location: bytes) -> None:
    """Many servers send names of files and addresses as they are, in one encoding or another."""

    def answer(request: object) -> None:
        request.wfile.write(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %s\r\n\r\n" % location)  # type: ignore[attr-defined]

    sites.pages["/"] = answer
    sites.page("/B%C3%A4ckerei", "bread")
    assert fetcher.follow(httpx2.URL(f"{sites.url}/"), 3)[-1].text == "bread"


@pytest.mark.parametrize("location", ["http://axn--$/", f"http://xn--{'a' * 300}/", "mailto:a@b"])
def test_a_redirect_to_what_is_no_address_is_refused(fetcher: Fetcher, sites: Sites, location: str) -> None:
    sites.redirect("/", location)
    assert code(fetcher, f"{sites.url}/") == "ADDRESS"


def test_no_cookie_comes_back(fetcher: Fetcher, sites: Sites) -> None:
    seen: list[str | None] = []

    def answer(request: object) -> None:
        seen.append(request.headers.get("Cookie"))  # type: ignore[attr-defined]
        request.reply(200, {"Set-Cookie": "a=b"}, b"")  # type: ignore[attr-defined]

    sites.pages["/"] = answer
    for _ in range(2):
        fetcher.follow(httpx2.URL(f"{sites.url}/"), 3)
    assert seen == [None, None]
