"""How a crawl behaves on sites of all kinds. Here it runs in the test's own process, on the application's tables."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
import pytest

from examples.crawl import crawler, hosts, urls
from examples.crawl.crawler import Config, Crawler
from examples.crawl.database import Database, connect
from examples.crawl.exports import EXPORTS, lines
from examples.crawl.fetch import Limits
from examples.crawl.frontier import Frontier
from examples.crawl.hosts import Hosts
from holdfast import Snooze
from tests.examples.crawl.site import Asked, Page, Reply, Site, page
from tests.servers import in_database, new_schema, shared_postgres

LIMITS = Limits(agent="holdfast-crawl/1.0", timeout=2.0, allow_private=True)


class Crawled(NamedTuple):
    id: str
    pages: set[str]
    ended: dict[str, tuple[str, str | None]]  # what became of the others


_urls: dict[str, str] = {}  # by engine: one database for all of these tests


@pytest.fixture
def db(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """The application's own tables, empty; without Holdfast's."""
    if engine not in _urls:
        _urls[engine] = f"sqlite:///{tmp_path_factory.mktemp('crawl')}/crawl.db"
        if engine == "postgres":
            name = new_schema()
            with psycopg.connect(shared_postgres(), autocommit=True) as connection:
                connection.execute(f"create database {name}".encode())
            _urls[engine] = in_database(shared_postgres(), name)
    with connect(_urls[engine]) as database:
        database.create()
        yield database
        database.changed("delete from crawl_jobs")
        database.changed("delete from crawl_hosts")
        database.changed("delete from crawl_robots")


def crawl(
    db: Database, site: Site, path: str = "/", *, scope: urls.ScopeKind = "host", max_depth: int | None = None,
    max_pages: int = 1_000, delay: float = 0.0, limits: Limits = LIMITS, longest_wait: float = 60.0,
) -> Crawled:  # fmt: skip
    id = str(db.value("insert into crawl_jobs (start_url) values (:url) returning id", url=f"{site.url}{path}"))
    frontier = Frontier(db, id, urls.Scope(scope), max_depth, lambda pending, done: None)
    config = Config(delay, max_pages, limits, first_retry=0.02, longest_wait=longest_wait)
    crawling = Crawler(frontier, Hosts(db, id, str(uuid4())), config, lambda: False, lambda note: None)
    frontier.begin(urls.parse(f"{site.url}{path}"))
    assert asyncio.run(crawling.run())
    assert frontier.pending == db.value(
        "select count(*) as n from crawl_urls where crawl_id = :id and state = 'todo'", id=id
    )
    return crawled(db, site, id)


def crawled(db: Database, site: Site, id: str) -> Crawled:
    rows = db.rows("select url, state, reason from crawl_urls where crawl_id = :id and kind = 'page'", id=id)
    found = {row["url"].removeprefix(site.url): (row["state"], row["reason"]) for row in rows}
    pages = {row["url"].removeprefix(site.url) for row in db.rows(
        "select url from crawl_pages where crawl_id = :id", id=id
    )}  # fmt: skip
    assert pages == {path for path, (state, _) in found.items() if state == "done"}
    return Crawled(id, pages, {path: how for path, how in found.items() if how[0] != "done"})


RULES = "User-agent: *\nDisallow: /a\n"


def robots(text: str) -> dict[str, Page]:
    return {"/robots.txt": Reply(text, type="text/plain")}


# -- politeness --------------------------------------------------------------------------------------------------------


def test_the_longer_of_both_delays_is_kept_between_any_two_requests(db: Database) -> None:
    pages: dict[str, Page] = {"/": page("/a", "/b"), "/a": page(), "/b": page()}
    with Site({**pages, **robots("User-agent: *\nCrawl-delay: 0.15")}) as site:
        crawl(db, site, delay=0.05)
        between_pages = site.gaps()[1:]
    assert min(between_pages) >= 0.15
    with Site({**pages, **robots("User-agent: *\nCrawl-delay: 0.01")}) as site:
        crawl(db, site, delay=0.1)
        assert min(site.gaps()) >= 0.1, "robots.txt and sitemaps are requests, too"


def test_a_busy_host_is_left_alone_for_as_long_as_it_asks(db: Database) -> None:
    def busy(asked: Asked, number: int) -> Reply | None:
        return Reply("busy", 503, {"Retry-After": "1"}) if asked.path == "/a" and number == 1 else None

    with Site({"/": page("/a", "/b"), "/a": page(), "/b": page()}, fault=busy) as site:
        done = crawl(db, site)
    assert done.pages == {"/", "/a", "/b"}
    after = site.paths.index("/a")
    assert site.gaps()[after] >= 1.0, "nothing else was asked meanwhile"


def test_while_a_site_is_down_it_is_asked_less_and_no_page_is_given_up(db: Database) -> None:
    until: list[float] = []

    def down(asked: Asked, number: int) -> Reply | None:
        if asked.path == "/" or asked.path.endswith(".txt") or asked.path.endswith(".xml"):
            return None
        until[:] = until or [asked.at + 2.0]
        return Reply("x", cut=True) if asked.at < until[0] else None

    pages: dict[str, Page] = {"/": page(*(f"/{n}" for n in range(12))), **{f"/{n}": page() for n in range(12)}}
    with Site(pages, fault=down) as site:
        assert crawl(db, site).pages == set(pages)
        assert sum(asked.at < until[0] for asked in site.asked) < 25


def test_a_host_that_wants_to_be_left_alone_for_long_keeps_no_process(db: Database) -> None:
    def busy(asked: Asked, number: int) -> Reply | None:
        return Reply("busy", 429, {"Retry-After": "600"}) if asked.path == "/" else None

    with Site({}, fault=busy) as site, pytest.raises(Snooze) as snoozed:
        crawl(db, site)
    assert 590 < snoozed.value.after <= 600
    assert site.times["/"] == 1


def test_a_crawl_that_died_while_it_asked_leaves_its_pause_behind(db: Database) -> None:
    with Site({"/": page()}) as site:
        dead = str(db.value("insert into crawl_jobs (start_url) values ('http://dead.example') returning id"))
        assert Hosts(db, dead, str(uuid4())).take(urls.parse(site.url).site, 0.3) == 0.0
        began = time.monotonic()
        crawl(db, site, delay=0.3)
        assert site.asked[0].at - began >= 0.3


def test_a_host_that_another_crawl_asks_is_not_asked(db: Database) -> None:
    id, other = (str(db.value(
        "insert into crawl_jobs (start_url, status) values ('http://a.example', 'processing') returning id"
    )) for _ in range(2))  # fmt: skip
    holder, waits = Hosts(db, id, str(uuid4())), Hosts(db, other, str(uuid4()))
    assert holder.take("a.example", 0.0) == 0.0
    assert waits.take("a.example", 0.0) > 0.0
    assert waits.take("b.example", 0.0) == 0.0
    holder.free("a.example", 5.0)
    assert 4.0 < waits.take("a.example", 0.0) <= 5.0


def test_a_host_is_asked_once_at_a_time_for_its_pages_and_for_the_rules_of_others(db: Database) -> None:
    """They redirect to it."""
    with Site(latency=0.1) as site, Site() as one, Site() as other:
        for neighbour in (one, other):
            neighbour.pages = {"/": page(), "/robots.txt": Reply(status=301, headers={"Location": f"{site.url}/rules"})}
        site.pages = {"/": page("/a", "/b", "/c", one.url, other.url), "/a": page(), "/b": page(), "/c": page()}
        crawl(db, site, scope="domain", delay=0.02)
        assert site.times["/rules"] == 2
        assert min(site.gaps()) >= 0.12


def test_a_host_of_whose_rules_another_must_be_asked_waits_without_a_process(db: Database) -> None:
    with Site({"/x": page()}) as busy, Site({"/": page()}) as site:
        site.pages["/robots.txt"] = Reply(status=301, headers={"Location": f"{busy.url}/robots.txt"})
        other = str(db.value("insert into crawl_jobs (start_url) values ('http://a.example') returning id"))
        asked = Hosts(db, other, str(uuid4()))
        assert asked.take(urls.parse(busy.url).site, 0.0) == 0.0
        asked.free(urls.parse(busy.url).site, 600.0)
        with pytest.raises(Snooze) as snoozed:
            crawl(db, site)
    assert 590 < snoozed.value.after <= 600


def test_http_and_https_of_a_host_share_its_pause() -> None:
    assert urls.parse("http://a.example/x").site == urls.parse("https://a.example/").site == "a.example"
    assert urls.parse("http://a.example:8080/").site == "a.example:8080"


# -- rules -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "times"), [(500, 5), (503, 5), (429, 5), (501, 1), (599, 1)])
def test_a_site_whose_rules_cannot_be_had_is_left_alone(db: Database, status: int, times: int) -> None:
    with Site({"/": page("/a"), "/robots.txt": Reply("x", status)}) as site:
        done = crawl(db, site)
    assert done.pages == set()
    assert done.ended == {"/": ("dead", f"HTTP_{status}: the host answered {status}")}
    assert site.paths == ["/robots.txt"] * times


def test_rules_hold_whatever_success_they_come_with_and_however_long_they_are(db: Database) -> None:
    for reply in (Reply(RULES, 203), Reply(RULES.encode("utf-16")), Reply(RULES.encode() + b"#" * 60_000_000)):
        with Site({"/": page("/a"), "/a": page(), "/robots.txt": reply}) as site:
            first, second = crawl(db, site), crawl(db, site)
            assert (first.pages, second.pages) == ({"/"}, {"/"})
            assert site.times["/robots.txt"] == 1, "the second crawl knows them"


def test_rules_are_read_again_after_a_day_and_old_ones_are_better_than_none(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crawler, "ROBOTS_LOOK", 0.0)
    monkeypatch.setattr(hosts, "ROBOTS_LAST", 0.0)
    answers = iter([Reply(RULES), Reply(RULES + "Disallow: /b"), *[Reply("away", 503)] * 50])
    with Site({"/": page("/a", "/b"), "/a": page(), "/b": page(), "/robots.txt": lambda asked: next(answers)}) as site:
        assert crawl(db, site).pages == {"/"}
        assert site.times["/robots.txt"] > 3


def test_nothing_is_asked_of_a_site_that_forbids_everything(db: Database) -> None:
    with Site({"/": page(), **robots("User-agent: *\nDisallow: /\nSitemap: /map.xml")}) as site:
        assert crawl(db, site).ended == {"/": ("skipped", "robots.txt forbids it")}
        assert site.paths == ["/robots.txt"]


@pytest.mark.parametrize("status", [401, 404, 403, 410])
def test_a_site_without_rules_allows_everything(db: Database, status: int) -> None:
    with Site({"/": page(), "/robots.txt": Reply("User-agent: *\nDisallow: /", status)}) as site:
        assert crawl(db, site).pages == {"/"}


def test_rules_are_found_behind_redirects_but_not_behind_endless_ones(db: Database) -> None:
    forbid = Reply("User-agent: *\nDisallow: /a", type="text/plain")
    moved = Reply(status=301, headers={"Location": "/elsewhere.txt"})
    with Site({"/": page("/a"), "/a": page(), "/robots.txt": moved, "/elsewhere.txt": forbid}) as site:
        assert crawl(db, site).pages == {"/"}
    circle = Reply(status=302, headers={"Location": "/robots.txt"})
    with Site({"/": page("/a"), "/a": page(), "/robots.txt": circle}) as site:
        assert crawl(db, site).pages == {"/", "/a"}
        assert site.times["/robots.txt"] == 6


def test_links_of_a_page_that_asks_so_are_not_followed_but_listed(db: Database) -> None:
    with Site({
        "/": page("/a", "/b"), "/a": page("/c", head='<meta name="robots" content="nofollow">'),
        "/b": Reply(page("/d"), headers={"X-Robots-Tag": "none"}), "/c": page(), "/d": page(),
    }) as site:  # fmt: skip
        done = crawl(db, site)
    assert done.pages == {"/", "/a", "/b"}
    assert db.value("select count(*) as n from crawl_links where target = :url", url=f"{site.url}/c") == 1


# -- what belongs to it ------------------------------------------------------------------------------------------------


def test_depth_scope_and_number_of_pages_are_limits(db: Database) -> None:
    pages: dict[str, Page] = {
        "/": page("/d/1", "/x"),
        "/x": page(),
        **{f"/d/{n}": page(f"{n + 1}") for n in range(1, 9)},
    }
    with Site(pages) as site:
        assert crawl(db, site, max_depth=0).pages == {"/"}
        assert crawl(db, site, max_depth=2).pages == {"/", "/x", "/d/1", "/d/2"}
        assert crawl(db, site, "/d/1", scope="path", max_depth=1).pages == {"/d/1", "/d/2"}
        few = crawl(db, site, max_pages=3)
    assert len(few.pages) == 3
    assert [reason for _, reason in few.ended.values()] == ["the crawl has its 3 pages"] * len(few.ended)
    assert few.ended


def test_other_hosts_are_listed_and_not_asked(db: Database) -> None:
    with Site({"/": page()}) as other, Site({"/": page(other.url)}) as site:
        assert crawl(db, site).pages == {"/"}
        assert other.asked == []
        assert db.value("select count(*) as n from crawl_links where target = :url", url=f"{other.url}/") == 1


def test_where_the_start_page_redirects_the_crawl_goes_on(db: Database) -> None:
    with Site({"/": page("/a", title="there"), "/a": page()}) as site:
        there = site.url.replace("127.0.0.1", "localhost")
        site.pages["/begin"] = Reply(status=301, headers={"Location": f"{there}/"})
        done = crawl(db, site, "/begin")
    assert done.pages == {f"{there}/", f"{there}/a"}
    assert done.ended == {"/begin": ("redirected", f"{there}/")}


# -- traps -------------------------------------------------------------------------------------------------------------


def test_redirects_in_circles_and_without_end_do_no_harm(db: Database) -> None:
    def moved(to: str) -> Reply:
        return Reply(status=302, headers={"Location": to})

    def endless(asked: Asked) -> Reply:
        return moved(f"/endless?n={int(asked.path.partition('=')[2] or 0) + 1}")

    pages: dict[str, Page] = {
        "/": page("/a", "/self", "/endless", "/nowhere", "/out"), "/a": moved("/b"), "/b": moved("/a"),
        "/self": moved("/self#x"), "/endless": endless, "/nowhere": moved("http://["),
        "/out": moved("http://o.example/"),
        **{f"/endless?n={n}": endless for n in range(1, 50)},
    }  # fmt: skip
    with Site(pages) as site:
        done = crawl(db, site)
    assert done.pages == {"/"}
    assert done.ended["/a"] == ("redirected", f"{site.url}/b")
    assert done.ended["/b"] == ("dead", "REDIRECT: it redirects in a circle")
    dead = [line.split(",")[1] for line in lines(db, EXPORTS["dead-links"], done.id)][1:]
    assert dead == [f"{site.url}{path}" for path in ("/a", "/endless", "/nowhere", "/self")], "by whatever way"
    assert done.ended["/self"] == ("dead", "REDIRECT: it redirects to itself")
    assert done.ended["/endless?n=10"] == ("dead", "REDIRECT: it redirects more than 10 times in a row")
    assert "to no address" in str(done.ended["/nowhere"][1])
    assert done.ended["/out"][0] == "redirected"
    assert "http://o.example/" not in done.ended


def test_session_ids_make_no_new_pages(db: Database) -> None:
    numbers = count()

    def visitor(asked: Asked) -> Reply:
        return Reply(page(f"/a;jsessionid={next(numbers)}", f"/?PHPSESSID={next(numbers)}", f"/?sid={uuid4().hex}&x=1"))

    with Site({"/": visitor, "/a": visitor, "/?x=1": visitor}) as site:
        assert crawl(db, site).pages == {"/", "/a", "/?x=1"}


def test_a_calendar_without_end_is_left_and_listed(db: Database) -> None:
    def month(asked: Asked) -> Reply:
        number = int(asked.path.rpartition("=")[2])
        return Reply(page(f"/cal?month={number + 1}", "/"))

    pages: dict[str, Page] = {"/": page("/cal?month=0"), **{f"/cal?month={n}": month for n in range(150)}}
    with Site(pages) as site:
        done = crawl(db, site)
    assert done.pages == {"/", *(f"/cal?month={n}" for n in range(101))}
    assert done.ended == {"/cal?month=101": ("skipped", "trap: a calendar: 101 dates in a row")}


def test_a_site_that_wants_its_parameters_in_one_order_gets_them_so(db: Database) -> None:
    pages: dict[str, Page] = {
        "/": Reply(page("/list?page=1&id=2", "/list?id=2&page=1", "/other?b=1&a=2"), headers={"ETag": '"1"'}),
        "/list?page=1&id=2": page(), "/other?b=1&a=2": Reply(status=301, headers={"Location": "/other?a=2&b=1"}),
        "/other?a=2&b=1": page(), **robots("User-agent: *\nDisallow: /*?id="),
    }  # fmt: skip
    with Site(pages) as site:
        assert crawl(db, site).pages == {"/", "/list?id=2&page=1", "/other?a=2&b=1"}
        site.pages["/"] = Reply(status=304)
        again = crawl(db, site)
    assert again.pages == {"/", "/list?id=2&page=1", "/other?a=2&b=1"}
    assert again.ended == {}


def test_a_calendar_whose_links_are_redirects_is_left_too(db: Database) -> None:
    def answer(asked: Asked) -> Reply:
        path, _, number = asked.path.partition("=")
        if path == "/go?date":
            return Reply(status=302, headers={"Location": f"/cal?date={number}"})
        return Reply(page(f"/go?date={int(number) + 1}"))

    pages: dict[str, Page] = {f"{path}={n}": answer for path in ("/cal?date", "/go?date") for n in range(150)}
    with Site({"/": page("/cal?date=0"), **pages}) as site:
        done = crawl(db, site)
    assert done.pages == {"/", *(f"/cal?date={n}" for n in range(101))}


# -- what comes back ---------------------------------------------------------------------------------------------------


def test_only_pages_are_read_and_none_that_is_too_large(db: Database) -> None:
    large = b"<p>" + b"x" * 5_000_001
    pages: dict[str, Page] = {
        "/": page(
            "/report.pdf", "/large", "/bomb", "/packed", "/xhtml", "/brotli", "/nothing", "/silent", "/raw", "/deep",
        ),
        "/report.pdf": Reply(large, type="application/pdf"), "/large": Reply(large),
        "/bomb": Reply(gzip.compress(large), headers={"Content-Encoding": "gzip"}),
        "/packed": Reply(gzip.compress(page("/found").encode()), headers={"Content-Encoding": "gzip"}),
        "/found": page(), "/xhtml": Reply(page(), type="application/xhtml+xml"),
        "/brotli": Reply(b"x", headers={"Content-Encoding": "br"}),
        "/nothing": Reply(status=204), "/silent": Reply(page(), type=""), "/raw": Reply("%PDF-1.7", type=""),
        "/deep": "<div>" * 100_000,
    }  # fmt: skip
    with Site(pages) as site:
        done = crawl(db, site)
    assert done.pages == {"/", "/packed", "/found", "/xhtml", "/silent"}
    assert done.ended["/raw"] == ("skipped", "type: none stated")
    assert done.ended["/deep"] == ("skipped", "its elements are nested too deep")
    assert done.ended["/report.pdf"] == ("skipped", "type: application/pdf")
    assert "is larger than 5,000,000 bytes" in str(done.ended["/large"][1])
    assert "unpacks to more than 5,000,000 bytes" in str(done.ended["/bomb"][1])
    assert "sent compressed (br)" in str(done.ended["/brotli"][1])
    assert done.ended["/nothing"] == ("dead", "HTTP_204: the host answered 204")


def test_a_second_crawl_asks_for_what_has_changed_only(db: Database) -> None:
    def tagged(asked: Asked, tag: str, body: str) -> Reply:
        if asked.headers.get("if-none-match") == tag:
            return Reply(status=304)
        return Reply(body, headers={"ETag": tag, "Last-Modified": "Thu, 19 Nov 2026 12:00:00 GMT"})

    with Site({
        "/": lambda asked: tagged(asked, '"1"', page("/a", "/b", title="Start")), "/b": page(),
        "/a": lambda asked: tagged(asked, '"1"', page("/c")), "/c": lambda asked: tagged(asked, '"1"', page()),
    }) as site:  # fmt: skip
        first = crawl(db, site)
        site.pages["/a"] = lambda asked: tagged(asked, '"2"', page("/c", "/new"))
        site.pages["/new"] = page()
        second = crawl(db, site)
        third = crawl(db, site)
    assert (first.pages, second.pages, third.pages) == (
        {"/", "/a", "/b", "/c"}, {"/", "/a", "/b", "/c", "/new"}, {"/", "/a", "/b", "/c", "/new"}
    )  # fmt: skip
    assert status(db, site, second.id) == {"/": 304, "/a": 200, "/b": 200, "/c": 304, "/new": 200}
    assert status(db, site, third.id) == {"/": 304, "/a": 304, "/b": 200, "/c": 304, "/new": 200}
    titles = db.rows("select distinct title, sha256 from crawl_pages where url = :url", url=f"{site.url}/")
    assert [row["title"] for row in titles] == ["Start"]


def test_a_page_whose_earlier_copy_is_deleted_meanwhile_is_asked_for_again(db: Database) -> None:
    def answer(asked: Asked) -> Reply:
        if "if-none-match" in asked.headers:
            db.changed("delete from crawl_jobs where id = :id", id=first.id)
            return Reply(status=304)
        return Reply(page("/a"), headers={"ETag": '"1"'})

    with Site({"/": answer, "/a": page()}) as site:
        first = crawl(db, site)
        assert crawl(db, site).pages == {"/", "/a"}
        assert site.times["/"] == 3


def status(db: Database, site: Site, id: str) -> dict[str, Any]:
    rows = db.rows("select url, status from crawl_pages where crawl_id = :id", id=id)
    return {row["url"].removeprefix(site.url): row["status"] for row in rows}


def test_pages_that_nothing_leads_to_are_found_in_sitemaps(db: Database) -> None:
    def listing(*locations: str, tag: str = "urlset") -> str:
        return f"<{tag}>{''.join(f'<url><loc>{one}</loc></url>' for one in locations)}</{tag}>"

    with Site({"/": page(), "/hidden": page("/behind"), "/behind": page(), "/plain": page()}) as site:
        index = listing(f"{site.url}/map.xml.gz", f"{site.url}/gone.xml", tag="sitemapindex")
        listed = listing(f"{site.url}/hidden", "http://other.example/", "nonsense", f"{site.url}/")
        site.pages |= {
            **robots(f"User-agent: *\nDisallow:\nSitemap: {site.url}/index.xml\nSitemap: /map.txt"),
            "/index.xml": Reply(index, type="application/xml"),
            "/map.txt": Reply(f"{site.url}/plain", type="text/plain"),
            "/map.xml.gz": Reply(gzip.compress(listed.encode()), type="application/gzip"),
        }  # fmt: skip
        done = crawl(db, site)
    assert done.pages == {"/", "/hidden", "/behind", "/plain"}
    assert done.ended == {}


def test_private_addresses_are_refused_unless_they_are_allowed(db: Database) -> None:
    with Site({"/": page()}) as site:
        done = crawl(db, site, limits=Limits(agent="x"))
        assert site.asked == []
    assert done.pages == set()
    [(state, reason)] = done.ended.values()
    assert state == "dead"
    assert reason == "PRIVATE: 127.0.0.1 leads to 127.0.0.1, which is not a public address"
