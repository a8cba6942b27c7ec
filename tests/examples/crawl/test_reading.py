"""What pages, sitemaps and headers say."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime

import httpx2
import pytest

from examples.crawl import parse, sitemaps
from examples.crawl.fetch import retry_after
from examples.safe_http import Reply

URL = "http://site.example/d/page"


def reply(body: str | bytes, kind: str = "text/html; charset=utf-8") -> Reply:
    raw = body.encode() if isinstance(body, str) else body
    return Reply(httpx2.URL(URL), 200, httpx2.Headers({"content-type": kind}), raw, len(raw), 0.0)


def links(body: str | bytes, kind: str = "text/html; charset=utf-8") -> list[str]:
    return [link.url.removeprefix("http://site.example") for link in parse.read(reply(body, kind), URL).links]


def test_links_are_found_wherever_a_page_has_them_each_once() -> None:
    html = """
        <a href=a>1<a href="a#x">2</a><A HREF='/b?x=1&amp;y=2'>3</A><map><area href="../c"></map>
        <iframe src=frame></iframe><a>none</a><a href="">itself</a><a href="mailto:x@site.example">no</a>
        <a href="http://site.example:99999/">no</a><a href="//other.example/">other</a>
        <!-- <a href="hidden"> --><script>"<a href='script'>"</script>
    """
    assert sorted(links(html)) == sorted(
        ["/d/a", "/b?x=1&y=2", "/c", "/d/frame", "/d/page", "http://other.example/"]
    )  # fmt: skip


def test_links_are_relative_to_the_base_that_a_page_names() -> None:
    assert links('<base href="/other/"><a href=a>') == ["/other/a"]
    assert links('<base href="javascript:0"><a href=a>') == ["/d/a"]


@pytest.mark.parametrize(
    "content", ["0; url=next", "5;URL='next'", '0;url="next"', "0, url = next", " 0 ; url=next ", "0.5;url=next"]
)
def test_a_page_that_sends_its_readers_on_has_a_link(content: str) -> None:
    quoted = content.replace('"', "&quot;")
    assert links(f'<meta http-equiv="refresh" content="{quoted}">') == ["/d/next"]


def test_a_page_in_another_encoding_is_read() -> None:
    html = "<meta charset={}><title>café</title><a href='/ü'>"
    for name in ("iso-8859-1", "windows-1252", "utf-8"):
        body = html.format(name).encode(name)
        page = parse.read(reply(body, "text/html"), URL)
        assert (page.title, page.links[0].path) == ("café", "/%C3%BC")
    assert parse.read(reply("<title>x é</title>".encode("utf-16"), "text/html"), URL).title == "x é"
    assert parse.read(reply(b"<meta charset=zlib_codec><title>x\xff</title>", "text/html"), URL).title == "xÿ"


def test_a_hostile_title_is_cut_and_cleaned() -> None:
    page = parse.read(reply(f"<title>a\0\n  b{'x' * 9_000}"), URL)
    assert page.title.startswith("a\ufffd b") or page.title.startswith("a b")
    assert "\0" not in page.title
    assert len(page.title) == 500


def test_a_link_asks_in_the_encoding_of_its_page_as_browsers_do() -> None:
    html = "<meta charset={}><a href='/ü?q=é€&r=1#ü'>"
    assert links(html.format("windows-1252").encode("cp1252"), "text/html") == ["/%C3%BC?q=%E9%80&r=1"]
    assert links(html.format("utf-8"), "text/html") == ["/%C3%BC?q=%C3%A9%E2%82%AC&r=1"]
    assert links(html.format("iso-8859-2").replace("€", "&euro;").encode("iso-8859-2"), "text/html") == [
        "/%C3%BC?q=%E9%26%238364%3B&r=1"
    ]


@pytest.mark.parametrize("html", [
    "<div>" * 100_000, "<div>" * 50_000 + "</div>" * 50_000, "<div/>" * 50_000, "<b><a href=x>" * 30_000,
    "<x-y>" * 10_000 + "<p>" * 20_000,
])  # fmt: skip
def test_a_page_that_would_take_a_parser_hours_is_refused(html: str) -> None:
    with pytest.raises(parse.TooDeep):
        parse.read(reply(html), URL)


@pytest.mark.parametrize("html", [
    "<p>x<br><li><a href=x>" * 10_000, "<svg>" + "<path d='M0'/>" * 20_000 + "</svg>",
    "<div><div></div></div>" * 10_000, "<font>" * 3_000,
])  # fmt: skip
def test_a_large_page_is_none(html: str) -> None:
    assert parse.read(reply(f"<title>large</title>{html}"), URL).title == "large"


def test_an_address_to_be_sent_on_to_is_found_in_time_that_grows_with_its_length() -> None:
    assert links(f'<meta http-equiv=refresh content="0;url={" " * 500_000}x">') == ["/d/page"]


@pytest.mark.parametrize(("values", "nofollow"), [
    (["nofollow"], True), (["noindex, NoFollow"], True), (["none"], True), (["holdfast-crawl: nofollow"], True),
    (["otherbot: nofollow"], False), (["otherbot: nofollow", "noindex"], False), (["otherbot: all", "nofollow"], True),
    (["unavailable_after: 25 Jun 2030 15:00:00 PST, nofollow"], True), (["max-snippet:5, nofollow"], True), ([], False),
])  # fmt: skip
def test_a_header_may_ask_the_same_of_all_crawlers_or_of_one(values: list[str], nofollow: bool) -> None:
    assert parse.header_asks_nofollow(httpx2.Headers([("x-robots-tag", value) for value in values])) is nofollow


@pytest.mark.parametrize(("body", "html"), [
    ("<!DOCTYPE html><p>", True), ("\ufeff\n <html lang=en>", True), ("<?xml version='1.0'?>\n<html>", True),
    ("<!-- x -->", True), ("<a href=x>", True), ("", False), ("plain", False), ("%PDF-1.7", False), ("{}", False),
    ("<abbr>", False), ("<?xml version='1.0'?><rss>", False),
])  # fmt: skip
def test_what_does_not_say_its_type_is_html_if_it_begins_so(body: str, html: bool) -> None:
    assert parse.looks_like_html(body.encode()) is html


@pytest.mark.parametrize(("content", "nofollow"), [
    ("nofollow", True), ("NOINDEX, NOFOLLOW", True), ("none", True), ("noindex", False), ("follow", False),
    ("nofollow-me", False),
])  # fmt: skip
def test_a_page_may_ask_that_its_links_are_not_followed(content: str, nofollow: bool) -> None:
    assert parse.read(reply(f'<meta name="Robots" content="{content}">'), URL).nofollow is nofollow
    assert not parse.read(reply(f'<meta name="otherbot" content="{content}">'), URL).nofollow


# -- sitemaps ----------------------------------------------------------------------------------------------------------

URLSET = """<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
  <url><loc> http://site.example/a?x=1&amp;y=2 </loc><lastmod>2026-01-01</lastmod></url>
  <url><loc><![CDATA[http://site.example/b]]></loc></url>
</urlset>"""
PAGES = ["http://site.example/a?x=1&y=2", "http://site.example/b"]


@pytest.mark.parametrize("body", [
    URLSET, "\ufeff" + URLSET, URLSET.replace("loc>", "s:loc>"), URLSET[: URLSET.index("</urlset>")],
    "http://site.example/a?x=1&y=2\r\nnonsense\nhttp://site.example/b",
    "<rss><channel><item><link>http://site.example/a?x=1&amp;y=2</link></item>"
    "<item><link>http://site.example/b</link></item></channel></rss>",
    '<feed><entry><link href="http://site.example/a?x=1&amp;y=2"/></entry><entry><link rel="x" href="http://site.example/b"/>'
    "</entry></feed>",
])  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
def test_a_sitemap_is_read_in_each_of_its_forms(body: str, packed: bool) -> None:
    raw = body.encode()
    assert sitemaps.read(gzip.compress(raw) if packed else raw) == sitemaps.Sitemap(pages=PAGES)


def test_a_list_of_sitemaps_names_further_ones() -> None:
    index = "<sitemapindex><sitemap><loc>http://site.example/1.xml.gz</loc></sitemap></sitemapindex>"
    assert sitemaps.read(index.encode()) == sitemaps.Sitemap(sitemaps=["http://site.example/1.xml.gz"])


@pytest.mark.parametrize(
    "body", ["<urlset>" + "<loc>" * 200_000, "<rss>" + "<link " * 200_000, "<loc>" + " " * 500_000]
)
def test_a_hostile_sitemap_is_read_in_time_that_grows_with_its_length(body: str) -> None:
    """With a pattern that looks for the end of each it would take hours."""
    assert sitemaps.read(f"<feed>{body}".encode()) == sitemaps.Sitemap()


def test_a_sitemap_without_end_is_refused_or_cut() -> None:
    many = b"<urlset>" + b"<url><loc>http://site.example/a</loc></url>" * 60_000
    assert len(sitemaps.read(many).pages) == sitemaps.MOST
    with pytest.raises(sitemaps.Broken, match="unpacks to more than"):
        sitemaps.read(gzip.compress(b" " * (sitemaps.LARGEST + 1)))
    with pytest.raises(sitemaps.Broken, match="can't be unpacked"):
        sitemaps.read(b"\x1f\x8bnonsense")
    with pytest.raises(sitemaps.Broken, match="neither a sitemap nor a feed"):
        sitemaps.read(b"<html><body>Not found</body></html>")
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><urlset><url><loc>http://site.example/&b;</loc></url></urlset>'
    assert sitemaps.read(bomb.encode()).pages == ["http://site.example/&b;"]


# -- Retry-After -------------------------------------------------------------------------------------------------------

NOW = datetime(2026, 11, 19, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(("value", "seconds"), [
    ("120", 120.0), (" 0 ", 0.0), ("-5", 0.0), ("1.5", 1.5), ("999999999", 86_400.0), ("", None), ("soon", None),
    ("inf", None), ("nan", None), ("Thu, 19 Nov 2026 12:01:00 GMT", 60.0), ("Thu, 19 Nov 2026 11:00:00 GMT", 0.0),
    ("Thursday, 19-Nov-26 12:00:30 GMT", 30.0), ("Thu Nov 19 12:00:10 2026", 10.0),
])  # fmt: skip
def test_the_host_says_when_to_come_back_in_seconds_or_as_a_date(value: str, seconds: float | None) -> None:
    assert retry_after(value, NOW) == seconds
