"""Each check, with a page that passes and one that does not."""

from __future__ import annotations

from contextlib import closing

import httpx2
import pytest

from examples.safe_http import Refused, Reply
from examples.site_audit.check import CHECKS, MOST_FINDINGS, ON_PAGES, Finding, Outcome, outcome
from examples.site_audit.page import XHTML, File, Page, same_site
from examples.site_audit.reading import READER, Reader
from examples.site_audit.score import CATEGORIES, category_scores, overall, points
from tests.examples.site_audit.sites import GOOD

HOME = "https://bakery.example/"
Headers = list[tuple[str, str]]
LONG = "x" * 3000


def reply(
    body: str = GOOD, url: str = HOME, status: int = 200, kind: str = "text/html", headers: Headers | None = None,
    seconds: float = 0.1, sent: int | None = None,
) -> Reply:  # fmt: skip
    all_headers = httpx2.Headers([("Content-Type", kind), *(headers or [])])
    data = body.encode()
    return Reply(httpx2.URL(url), status, all_headers, data, len(data) if sent is None else sent, seconds)


def page(body: str = GOOD, *before: str, **of_reply: object) -> Page:
    """`before`: the addresses that led to it."""
    chain = [reply(status=302, url=url) for url in before]
    return Page([*chain, reply(body, **of_reply)])  # type: ignore[arg-type]


def with_file(headers: Headers, body: str = LONG, kind: str = "text/css", sent: int | None = None) -> Page:
    answer = reply(body, f"{HOME}a.css", kind=kind, headers=headers, sent=sent)
    return Page([reply()], files=[File(answer, '<link rel="stylesheet" href="/a.css">', len(body))])


def robots(text: str, kind: str = "text/plain", path: str = "") -> Page:
    return Page([reply(url=f"{HOME}{path}")], robots=reply(text, f"{HOME}robots.txt", kind=kind))


def sitemap(text: str, kind: str = "text/xml") -> Page:
    return Page([reply()], sitemap=reply(text, f"{HOME}sitemap.xml", kind=kind))


def head(text: str) -> Page:
    return page(f"<html><head>{text}</head><body></body></html>")


def body(text: str) -> Page:
    return page(f"<html><body>{text}</body></html>")


def told(name: str, value: str) -> Page:
    return page(headers=[(name, value)])


NOTHING = page("")
GOOD_TITLE = "<title>Bread from a good oven</title>"
PASSES = {
    "response-time": page(seconds=0.7), "redirects": page(GOOD, "https://www.bakery.example/"),
    "page-weight": page(sent=900_000), "compression": page(LONG, headers=[("Content-Encoding", "gzip")]),
    "caching": with_file([("Cache-Control", "max-age=31536000")]),
    "blocking-scripts": head("<script defer src=a></script><script type=module src=b></script>"),
    "image-sizes": body("<img src=a width=1 height=2>"), "status": page(), "title": head(GOOD_TITLE),
    "description": head(f'<meta name="Description" content="{"x" * 60}">'), "main-heading": body("<h1>A</h1>"),
    "canonical": head('<link rel="canonical" href="/b">'), "noindex": head('<meta name="robots" content="index">'),
    "robots": robots("User-agent: *\nDisallow: /private"), "sitemap": sitemap("<urlset><url><loc>x</loc>"),
    "structured-data": body(
        '<script type="application/ld+json">{"@context": "https://schema.org", "@type": "Bakery"}</script>'),
    "charset": page("", kind="text/html; charset=utf-8"), "language": page("<html lang=de-CH>"),
    "viewport": head('<meta name="viewport" content="width=device-width, initial-scale=1">'),
    "image-texts": body('<img src=a alt=""><img src=b alt="Bread">'),
    "form-labels": body(
        "<label for=a>A</label><input id=a><label>B<input></label><input aria-label=C><input type=hidden>"),
    "link-names": body("<a href=a>Our bread</a><a href=b><img src=c alt=Home></a><button>Buy</button>"),
    "heading-order": body("<h1>A</h1><h2>B</h2><h3>C</h3><h2>D</h2>"),
    "duplicate-ids": body("<p id=a></p><p id=b></p>"),
    "https": page(), "hsts": told("Strict-Transport-Security", "max-age=31536000; includeSubDomains"),
    "content-policy": told("Content-Security-Policy", "default-src 'self'"),
    "nosniff": told("X-Content-Type-Options", "nosniff"), "framing": told("X-Frame-Options", "DENY"),
    "referrer": told("Referrer-Policy", "strict-origin"),
    "cookies": told("Set-Cookie", "a=b; Secure; HttpOnly; SameSite=Lax"),
    "mixed-content": body("<img src=https://a.example/b><script src=/c></script>"),
}  # fmt: skip
FAILS = [
    ("response-time", page(seconds=1.5), "moderate"), ("response-time", page(seconds=3.0), "serious"),
    ("redirects", page(GOOD, "https://a.example/", "https://b.example/"), "moderate"),
    ("redirects", head("<META HTTP-EQUIV=Refresh CONTENT='0; URL=/en/'>"), "moderate"),
    ("page-weight", page(sent=1_200_000), "moderate"), ("page-weight", page(sent=4_000_000), "serious"),
    ("page-weight", Page([reply()], files=[File(None, "<img>", too_large=True)]), "serious"),
    ("compression", page(LONG), "serious"), ("compression", with_file([]), "moderate"),
    ("caching", with_file([]), "moderate"), ("caching", with_file([("Cache-Control", "no-store")]), "moderate"),
    ("caching", with_file([("Cache-Control", "max-age=60")]), "minor"),
    ("caching", with_file([("Expires", "0")]), "moderate"),
    ("blocking-scripts", head("<script src=a></script>"), "moderate"),
    ("image-sizes", body("<img src=a>"), "minor"), ("status", page(status=404), "critical"),
    ("status", page(kind="application/pdf"), "critical"), ("title", NOTHING, "serious"),
    ("title", head("<title> </title>"), "serious"), ("title", head("<title>Hi</title>"), "moderate"),
    ("title", head(f"<title>{'x' * 90}</title>"), "minor"), ("title", head(GOOD_TITLE * 2), "minor"),
    ("title", page(f"<head><div></div>{GOOD_TITLE}</head>"), "moderate"),
    ("description", NOTHING, "moderate"), ("description", head('<meta name=description content="Hi">'), "minor"),
    ("main-heading", NOTHING, "moderate"), ("main-heading", body("<h1>A</h1><h1>B</h1>"), "minor"),
    ("canonical", NOTHING, "minor"),
    ("canonical", head("<link rel=canonical href=/a><link rel=canonical href=/b>"), "serious"),
    ("canonical", head("<link rel=canonical href='mailto:a@b'>"), "serious"),
    ("canonical", head("<link rel=canonical href=https://other.example/>"), "moderate"),
    ("canonical", head("<link rel=canonical href=''>"), "serious"),
    ("canonical", page("<p>x<link rel=canonical href=/b>"), "serious"),
    ("noindex", head("<meta name=ROBOTS content='follow, NOINDEX'>"), "serious"),
    ("noindex", told("X-Robots-Tag", "noindex"), "serious"),
    ("noindex", told("X-Robots-Tag", "googlebot: nofollow, none"), "serious"), ("robots", page(), "minor"),
    ("robots", robots("<html>", "text/html"), "moderate"),
    ("robots", robots("User-agent: *\nDisallow: /a", path="a/b"), "serious"),
    ("robots", robots("\ufeffUser-agent: *\nDisallow: /*?sort=", path="a?sort=b"), "serious"),
    ("sitemap", page(), "minor"), ("sitemap", sitemap("<html>", "text/html"), "moderate"),
    ("structured-data", body('<script type="application/ld+json">{"a": </script>'), "moderate"),
    ("structured-data", body(f'<script type="application/ld+json">{"[" * 100_000}</script>'), "moderate"),
    ("structured-data", body('<script type="application/ld+json">{"@type": "Bakery"}</script>'), "moderate"),
    ("structured-data", body('<script type="application/ld+json">{"@context": 1, "@graph": [{}]}'), "moderate"),
    ("charset", NOTHING, "moderate"), ("language", NOTHING, "serious"),
    ("language", page("<html lang='english please'>"), "moderate"), ("viewport", NOTHING, "serious"),
    ("viewport", head("<meta name=viewport content='width=device-width, user-scalable=no'>"), "serious"),
    ("viewport", head("<meta name=viewport content='width=device-width, maximum-scale=1.0'>"), "serious"),
    ("image-texts", body("<img src=a>"), "serious"), ("form-labels", body("<select></select>"), "serious"),
    ("form-labels", body("<label for=b>B</label><textarea id=a></textarea>"), "serious"),
    ("link-names", body("<a href=a><img src=b></a>"), "serious"), ("link-names", body("<button> </button>"), "serious"),
    ("link-names", body("<a href=a>Click here!</a>"), "minor"),
    ("heading-order", body("<h2>A</h2><h4>B</h4>"), "moderate"),
    ("duplicate-ids", body("<p id=a></p><b id=a></b>"), "moderate"),
    ("https", page(url="http://bakery.example/"), "critical"), ("hsts", page(), "moderate"),
    ("hsts", told("Strict-Transport-Security", "max-age=3600"), "minor"), ("content-policy", page(), "moderate"),
    ("content-policy", told("Content-Security-Policy", "img-src 'self'"), "moderate"),
    ("content-policy", told("Content-Security-Policy", "script-src 'self' 'unsafe-inline'"), "minor"),
    ("content-policy", told("Content-Security-Policy", "script-src https:"), "moderate"),
    ("nosniff", page(), "minor"), ("framing", page(), "minor"),
    ("referrer", told("Referrer-Policy", "unsafe-url"), "moderate"),
    ("cookies", told("Set-Cookie", "a=b; SameSite=Lax; Secure"), "moderate"),
    ("cookies", told("Set-Cookie", "a=b; HttpOnly; Secure"), "minor"),
    ("cookies", told("Set-Cookie", "a=b; Secure; HttpOnly; SameSite=None"), "minor"),
    ("mixed-content", body("<img srcset='/a 1x, http://b.example/c 2x'>"), "moderate"),
    ("mixed-content", page("<base href=http://bakery.example/><iframe src=a>"), "serious"),
    ("mixed-content", body("<script src=http://a.example/b></script>"), "serious"),
    ("mixed-content", body("<img src=HTTP://a.example/b>"), "moderate"),
]  # fmt: skip
XML = '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml" xml:lang="de">'
# What is odd, and still as it should be.
PASSES_TOO = [
    ("title", page(f"{XML}<head><script src='a.js'/>{GOOD_TITLE}</head><body/></html>", kind=XHTML)),
    ("title", page(f"{GOOD_TITLE}<p>A page without a head<svg><title>Oven</title></svg>")),
    ("language", page(XML, kind=XHTML)), ("charset", page(XML, kind=XHTML)), ("language", page("<HTML LANG='de'>")),
    ("viewport", head("<META NAME=VIEWPORT CONTENT='initial-scale = 1'>")),
    ("viewport", head("<meta name=viewport content='width=device-width, maximum-scale=5.0.1'>")),
    ("viewport", head("<meta name=viewport content='width=device-width, maximum-scale=.'>")),
    ("canonical", head('<LINK REL="CANONICAL" HREF="/b">')),
    ("canonical", page("<p>x", headers=[("Link", '<https://cdn.example/>; rel=preconnect, </b>; rel="canonical"')])),
    ("canonical", page("<link rel=canonical href=/b>", headers=[("Link", f"<{HOME}b>; rel=canonical")])),
    ("noindex", told("X-Robots-Tag", "max-image-preview:none, all")),
    ("noindex", told("X-Robots-Tag", "otherbot: noindex")),
    ("noindex", head("<meta name=robots content='max-image-preview:none'>")),
    ("robots", robots("User-agent: *\nDisallow: /\nAllow: /bread", path="bread")),
    ("sitemap", sitemap("https://bakery.example/rye\n", "text/plain")),
    ("sitemap", sitemap("<rss><channel><link>https://bakery.example/rye</link></channel></rss>")),
    ("nosniff", page(headers=[("X-Content-Type-Options", "nosniff")] * 2)),
    ("framing", page(headers=[("X-Frame-Options", "SAMEORIGIN")] * 2)),
    ("referrer", told("Referrer-Policy", "unsafe-url, strict-origin")),
    ("cookies", told("Set-Cookie", "a=b; secure ;HTTPONLY; Expires=Fri, 01 Jan 2100 00:00:00 GMT;samesite = strict")),
    ("content-policy", page(headers=[("Content-Security-Policy", one) for one in ("img-src *", "default-src 'self'")])),
    ("image-texts", body("<img src=a alt=''><img src=b aria-hidden=true>")),
    ("image-sizes", body("<img src=a style='WIDTH: 1px; height: 2px'>")),
    ("link-names", body("<a href=a><i aria-label=Home></i></a><a href=b><svg><title>Search</title></svg></a>")),
    ("link-names", body("<button>Buy</button><a href=a aria-hidden=true></a>")),
    ("blocking-scripts", head("<script src=a ASYNC></script>")),
    ("mixed-content", body("<img src='data:image/png;base64,http:'><a href=http://a.example>A</a>")),
    ("redirects", body("<noscript><meta http-equiv=refresh content='0;url=/plain'></noscript>")),
    ("redirects", head("<meta http-equiv=refresh content=300>")),
]  # fmt: skip
NEEDS_SOMETHING = [
    ("compression", page("short")), ("caching", page()), ("blocking-scripts", page()), ("image-sizes", page()),
    ("structured-data", page()), ("image-texts", page()), ("form-labels", page()), ("link-names", page()),
    ("heading-order", NOTHING), ("duplicate-ids", page()), ("hsts", page(url="http://bakery.example/")),
    ("cookies", page()), ("cookies", told("Set-Cookie", "a=; Expires=Thu, 01-Jan-1970 00:00:00 GMT; Path=/")),
    ("cookies", told("Set-Cookie", "a=; Max-Age=0")), ("image-texts", body("<img src=a hidden>")),
    ("mixed-content", page(url="http://bakery.example/")),
]  # fmt: skip


def outcome_of(name: str, page: Page) -> Outcome:
    return outcome(CHECKS[name], ON_PAGES[name](page))


def test_there_are_as_many_as_promised_and_each_is_tried_here() -> None:
    assert len(ON_PAGES) >= 25
    assert set(ON_PAGES) == set(PASSES) == {name for name, *_ in FAILS}
    assert {CHECKS[name].category for name in ON_PAGES} == set(CATEGORIES)


@pytest.mark.parametrize("name", PASSES)
def test_a_page_passes(name: str) -> None:
    assert outcome_of(name, PASSES[name]) == Outcome(name, True, [])


@pytest.mark.parametrize(("name", "page"), PASSES_TOO, ids=[f"{name}-{n}" for n, (name, _) in enumerate(PASSES_TOO)])
def test_an_odd_page_passes_all_the_same(name: str, page: Page) -> None:
    assert outcome_of(name, page) == Outcome(name, True, [])


@pytest.mark.parametrize(("name", "page", "severity"), FAILS, ids=[f"{name}-{severe}" for name, _, severe in FAILS])
def test_a_page_fails_with_the_severity_that_it_deserves(name: str, page: Page, severity: str) -> None:
    found = outcome_of(name, page)
    assert found.applies
    assert severity in {finding.severity for finding in found.findings}
    assert all(finding.text.endswith((".", "…")) or ":" in finding.text for finding in found.findings)


@pytest.mark.parametrize(("name", "page"), NEEDS_SOMETHING, ids=[name for name, _ in NEEDS_SOMETHING])
def test_what_is_not_on_the_page_counts_neither_for_nor_against(name: str, page: Page) -> None:
    assert outcome_of(name, page) == Outcome(name, False, [])


def test_the_offending_element_is_named() -> None:
    [finding] = outcome_of("image-texts", body('<p><img src="a.png" class="wide">')).findings
    assert finding.element == '<img src="a.png" class="wide">'


# -- the score ---------------------------------------------------------------------------------------------------------


def of(check: str, *severities: str, applies: bool = True) -> Outcome:
    category = CHECKS[check].category
    return Outcome(check, applies, [Finding(check, category, one, "", None) for one in severities])  # type: ignore[arg-type]


def test_a_check_costs_what_its_worst_finding_costs() -> None:
    found = [[], ["info"], ["minor"] * 9, ["moderate", "minor"], ["critical"]]
    assert [points(of("title", *severities)) for severities in found] == [1.0, 1.0, 0.75, 0.5, 0.0]


def test_a_category_is_the_mean_of_its_checks_by_weight() -> None:
    # title 8, description 5: half of 8, all of 5. What does not apply is not in it.
    outcomes = [
        of("title", "moderate"),
        of("description"),
        of("structured-data", applies=False),
        of("https", "critical"),
    ]
    scores = category_scores(outcomes)
    assert scores == {"seo": round(100 * 9 / 13), "security": 0}
    assert overall(scores) == round((25 * 69 + 20 * 0) / 45)


def test_all_is_well_is_a_hundred_and_nothing_is_zero() -> None:
    assert overall(category_scores([of(name) for name in ON_PAGES])) == 100
    assert overall(category_scores([of(name, "critical") for name in ON_PAGES])) == 0
    assert sum(CATEGORIES.values()) == 100


# -- hostile pages -----------------------------------------------------------------------------------------------------

HOSTILE = {
    "deep, but not too deep": "<div>" * 2_900 + "<input>" * 30_000,
    "many attributes": ("<img " + " ".join(f"a{n}=1" for n in range(2_900)) + ">") * 20,
    "many of a kind": "<img src=a><a href=b></a><input>" * 20_000,
    "NUL and controls": "<title>\0\x01\x02\ufffe</title><img src='\0' id='\0'>" * 10,
    "half a character": "<html lang='\u0301\u202e'><title>\u202e\u2066</title>",
    "long values": f"<meta name=viewport content='width=1,maximum-scale={'9' * 500_000}'><title>{'x' * 500_000}",
    "a header of its own": "<meta http-equiv=content-security-policy content=';;; ; script-src'>",
    "labels in labels": "<label>" * 2_900 + "<input>" * 3_000,
    "unclosed": "<script type=application/ld+json>{" + "<!--" * 50_000,
    "half tags": "<" * 500_000 + "<a" * 500_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_page_is_checked_soon_and_in_little_space(name: str) -> None:
    """Within the limits of the process that reads pages."""
    for one in READER.tier(page(HOSTILE[name])).outcomes:
        assert len(one.findings) <= MOST_FINDINGS + 1
        for finding in one.findings:
            assert len(finding.text) <= 300
            assert len(finding.element or "") <= 200
            assert "\0" not in f"{finding.text}{finding.element}"


# Each keeps a parser busy for minutes, or takes gigabytes, if nothing stops it.
TOO_MUCH = {
    "elements in elements": "<div>" * 400_000,
    "closed by what is not open": "<div></x>" * 200_000,
    "attributes": "<p " + " ".join(f"a{n}" for n in range(250_000)) + ">",
    "fonts that begin again with each paragraph":
        "<p>" + "".join(f"<font c={n}>" for n in range(1_000)) + "</p>" + "<p>x" * 20_000,
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_page_that_keeps_a_parser_busy_is_refused_and_the_next_one_read(name: str) -> None:
    reader = Reader(longest=0.5, most_memory=400 * 2**20)
    with closing(reader):
        with pytest.raises(Refused, match="TOO_COMPLEX"):
            reader.names(reply(TOO_MUCH[name]), httpx2.URL(HOME))
        assert reader.names(reply("<a href=/a>A</a>"), httpx2.URL(HOME)) == [f"{HOME}a"]


@pytest.mark.parametrize(
    ("other", "same"),
    [("http://www.bakery.example/a", True), ("https://shop.bakery.example/", False), (f"{HOME[:-1]}:8443/", False)],
)
def test_what_belongs_to_a_site(other: str, same: bool) -> None:
    assert same_site(httpx2.URL(HOME), httpx2.URL(other)) is same


def test_a_large_drawing_is_no_reason_to_refuse_a_page() -> None:
    drawing = "<svg>" + "<path d='M0 0'/>" * 20_000 + "</svg><a href=/a>A</a>"
    assert READER.names(reply(drawing), httpx2.URL(HOME)) == [f"{HOME}a"]


def test_a_mistake_of_ours_is_not_taken_for_a_hostile_page() -> None:
    with closing(Reader()) as reader, pytest.raises(RuntimeError, match="ended with 1"):
        reader.names(reply("<a href=/a>A</a>"), None)  # type: ignore[arg-type]


def test_what_is_left_out_is_counted() -> None:
    found = outcome_of("image-texts", body("<img src=a>" * (MOST_FINDINGS + 1_234)))
    assert len(found.findings) == MOST_FINDINGS + 1
    assert (found.findings[-1].severity, "1,234 more" in found.findings[-1].text) == ("info", True)
