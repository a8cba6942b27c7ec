"""One spelling for each address, and what belongs to a crawl."""

from __future__ import annotations

from uuid import uuid4

import pytest

from examples.crawl import traps, urls

SAME = {
    "letter case of scheme and host": ("HTTP://Site.Example/a", "http://site.example/a"),
    "the default port": ("http://site.example:80/", "http://site.example"),
    "the default port of https": ("https://site.example:443/", "https://site.example/"),
    "dots": ("http://site.example/a/./b/../c", "http://site.example/a/c"),
    "escaped dots": ("http://site.example/a/%2e%2E/b", "http://site.example/b"),
    "a backslash, as browsers read it": (r"http:\\site.example\a", "http://site.example/a"),
    "spaces and line breaks around and inside": (" http://site.ex\nample/a ", "http://site.example/a"),
    "the fragment": ("http://site.example/a#part", "http://site.example/a"),
    "an empty query": ("http://site.example/a?", "http://site.example/a"),
    "the order of parameters": ("http://site.example/?b=2&a=1", "http://site.example/?a=1&b=2"),
    "where the visitor came from": ("http://site.example/?utm_source=x&a=1&fbclid=y", "http://site.example/?a=1"),
    "who the visitor is": ("http://site.example/a?PHPSESSID=0123456789abcdef", "http://site.example/a"),
    "who he is, by a name that may mean others": (
        "http://site.example/a?sid=8f3a2c1d&session_id=0123456789012345", "http://site.example/a",
    ),
    "who he is, in the path": ("http://site.example/a;jsessionid=1A2B?x=1", "http://site.example/a?x=1"),
    "who he is, in a part of the path": (
        "http://site.example/(S(lit3py55t21z5v55vlm25s55))/a", "http://site.example/a",
    ),
    "a name in another script": ("http://bücher.example/ü", "http://xn--bcher-kva.example/%c3%bc"),
    "escapes that are not needed": ("http://site.example/%7Euser/%61", "http://site.example/~user/a"),
    "a dot after the host": ("http://site.example./a", "http://site.example/a"),
    "odd spellings of an IP address": ("http://0x7f.1/", "http://127.0.0.1/"),
}  # fmt: skip


@pytest.mark.parametrize("what", SAME)
def test_addresses_that_differ_in_it_are_the_same(what: str) -> None:
    one, other = SAME[what]
    assert urls.parse(one) == urls.parse(other)


def test_parameters_are_asked_for_in_the_order_in_which_they_were_found() -> None:
    address = urls.parse("http://site.example/a?page=2&PHPSESSID=x&id=%31#part")
    assert (address.url, address.asked) == (
        "http://site.example/a?id=1&page=2", "http://site.example/a?page=2&id=1"
    )  # fmt: skip
    assert address.target == "/a?page=2&id=1"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://site.example/a", "http://site.example/A"),
        ("http://site.example/a", "http://site.example/a/"),
        ("http://site.example/a%2Fb", "http://site.example/a/b"),
        ("http://site.example/?a=1&a=2", "http://site.example/?a=2&a=1"),
        ("http://site.example/?a=", "http://site.example/?a"),
        ("http://site.example/?a=%26b", "http://site.example/?a=&b"),
        ("http://site.example/a;v=1", "http://site.example/a"),
        ("http://site.example:8080/", "http://site.example/"),
        ("http://site.example/talk?session_id=12", "http://site.example/talk?session_id=13"),
        ("http://site.example/story?sid=20260101", "http://site.example/story?sid=20260102"),
        ("http://site.example/", "https://site.example/"),
    ],
)
def test_addresses_that_may_be_different_pages_stay_different(one: str, other: str) -> None:
    assert urls.parse(one).url != urls.parse(other).url


@pytest.mark.parametrize("text", [
    "http://site.example/a?b=%zz&c=%", "http://site.example/%", "http://[::1]:8080/a", "http://site.example/ü?ä=ö#x",
    "https://site.example:8443//a//b", "http://site.example/?&&a", "http://xn--bcher-kva.example/",
])  # fmt: skip
def test_the_one_spelling_stays_as_it_is(text: str) -> None:
    once = urls.parse(text)
    assert urls.parse(once.url) == once
    assert once.url.isascii()


@pytest.mark.parametrize("text", [
    "mailto:a@site.example", "javascript:alert(1)", "ftp://site.example/", "data:text/html,x", "http://", "http:///",
    "http://user:password@site.example/", "http://site.example:99999/", "http://exa mple/", "", "tel:1", "http://a.example:0/",
])  # fmt: skip
def test_what_is_no_address_of_a_page_is_refused(text: str) -> None:
    with pytest.raises(urls.NotForUs):
        urls.parse(text)


@pytest.mark.parametrize(("text", "means"), [
    ("b", "http://site.example/d/b"), ("/b", "http://site.example/b"), ("../b", "http://site.example/b"),
    ("?x=1", "http://site.example/d/a?x=1"), ("#x", "http://site.example/d/a"),
    ("//other.example/b", "http://other.example/b"), ("b c", "http://site.example/d/b%20c"),
    ("http:b", "http://site.example/d/b"), ("", "http://site.example/d/a"),
])  # fmt: skip
def test_a_link_is_read_as_browsers_read_it(text: str, means: str) -> None:
    assert urls.parse(text, "http://site.example/d/a").url == means


def inside(kind: urls.ScopeKind, text: str, start: str = "http://www.site.example/docs/index.html") -> bool:
    return urls.Scope(kind, [urls.parse(start)]).includes(urls.parse(text))


def test_a_crawl_stays_on_its_host() -> None:
    assert inside("host", "http://www.site.example/other")
    assert inside("host", "https://www.site.example/other"), "one site, however it is asked"
    assert not inside("host", "http://site.example/")
    assert not inside("host", "http://www.site.example:8080/")
    assert not inside("host", "http://www.site.example.evil.example/")


def test_a_crawl_below_its_start_page_stays_there() -> None:
    assert inside("path", "http://www.site.example/docs/a/b")
    assert not inside("path", "http://www.site.example/docs.html")
    assert not inside("path", "http://www.site.example/")


def test_a_crawl_of_a_domain_takes_its_subdomains_in() -> None:
    assert inside("domain", "http://site.example/")
    assert inside("domain", "http://a.b.site.example/")
    assert not inside("domain", "http://notsite.example/")


def test_a_path_that_repeats_itself_is_a_trap() -> None:
    assert traps.trap(urls.parse("http://site.example" + "/a/b" * 11), 0) == "the path repeats 'a' 11 times"
    assert traps.trap(urls.parse("http://site.example" + "/a" * 10 + "/b" * 10), 0) is None
    assert traps.trap(urls.parse("http://site.example/" + "/".join(map(str, range(100)))), 0) is None
    assert "100 parts" in str(traps.trap(urls.parse("http://site.example/" + "/".join(map(str, range(101)))), 0))
    assert "2,000" in str(traps.trap(urls.parse("http://site.example/" + "x" * 2_000), 0))


def chained(addresses: list[str]) -> list[str | None]:
    """Each was found on the one before."""
    found: list[str | None] = []
    last: list[tuple[str, int]] = []
    for text in addresses:
        address = urls.parse(text)
        chain = traps.chain(address, dict(last))
        found.append(traps.trap(address, chain))
        last = [*last[-1:], (traps.shape(address), chain)]
    return found


def test_a_calendar_ends_after_a_hundred_months() -> None:
    months = [f"http://site.example/events/{2026 + n // 12}/{n % 12 + 1:02}" for n in range(110)]
    assert chained(months).index("a calendar: 101 dates in a row") == 101
    assert "a calendar" in str(chained([f"http://site.example/?month={n}&x=1" for n in range(110)])[-1])
    names = ("January", "feb", "mar", "apr", "may", "june", "jul", "aug", "sept", "oct", "nov", "December")
    named = [f"http://site.example/{2026 + n // 12}/{names[n % 12]}/" for n in range(110)]
    assert "a calendar" in str(chained(named)[-1])
    by_turns = [f"http://site.example/{('month', 'next')[n % 2]}?date=2026-{n % 12 + 1:02}-{n}" for n in range(220)]
    assert "a calendar" in str(chained(by_turns)[-1]), "by way of another page"


def test_ids_that_are_new_each_time_are_a_trap() -> None:
    assert "differ by a number" in str(chained([f"http://site.example/{uuid4()}/in" for _ in range(1_005)])[-1])
    assert "differ by a number" in str(chained([f"http://site.example/{uuid4().hex[:12]}" for _ in range(1_005)])[-1])
    marches = ["http://site.example/march", "http://site.example/maybe", "http://site.example/april"]
    assert chained(marches) == [None] * 3


def test_a_long_row_of_pages_is_none() -> None:
    assert set(chained([f"http://site.example/list?page={n}" for n in range(1_000)])) == {None}
    assert "differ by a number" in str(chained([f"http://site.example/list?page={n}" for n in range(1_005)])[-1])
    index = urls.parse("http://site.example/archive")
    months = (urls.parse(f"http://site.example/{year}/05/") for year in range(1990, 2100))
    assert {traps.trap(month, traps.chain(month, {traps.shape(index): 0})) for month in months} == {None}, (
        "from an index: a list"
    )
