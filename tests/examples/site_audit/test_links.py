"""Every internal link of a site, compared with a walk through its pages as they lie there."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest

from examples.safe_http import Fetcher
from examples.site_audit.links import Walk
from examples.site_audit.page import rules_of
from holdfast import Holdfast
from tests.adopt.systems.database import Database
from tests.examples.site_audit.application import analyze, document
from tests.examples.site_audit.sites import Sites, walked_offline
from tests.http.asking import Ask

LINKS = 3_000


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    with Fetcher("test", allow_private=True, compressed=True, longest=2.0) as fetcher:
        yield fetcher


def walked(fetcher: Fetcher, sites: Sites, path: str = "/", robots: str = "", **limits: float) -> Walk:
    walk = Walk(fetcher, sites.url + path, rules_of(robots), **limits)  # type: ignore[arg-type]
    for _ in walk.steps():
        pass
    return walk


def broken(walk: Walk, sites: Sites) -> set[str]:
    return {link.url.removeprefix(sites.url) for link in walk.broken}


def a_large_site(sites: Sites, links: int) -> None:
    """Pages in a tree, each of which also names some anywhere: pages, redirects, files, and things that are not there.
    The last link of the last page is broken."""
    chance = random.Random(27)
    names = [f"/{n}" for n in range(links)]
    kinds = ["page"] * 30 + ["gone", "error", "redirect", "redirect to nothing", "file"]
    made = {name: "page" if n < links // 10 or n == links - 1 else chance.choice(kinds) for n, name in enumerate(names)}
    for n, name in enumerate(names):
        children = [names[child] for child in range(n * 10 + 1, min(links, n * 10 + 11))]
        found = [*children, *chance.sample(names, 3)]
        body = "".join(f'<a href="{link}">x</a>' if chance.random() < 0.8 else f'<img src="{link}">' for link in found)
        match made[name]:
            case "page":
                sites.page(name, body + ('<a href="/the-last">x</a>' if n == links - 1 else ""))
            case "error":
                sites.page(name, body, chance.choice([410, 500]))
            case "redirect":
                sites.redirect(name, "/0")
            case "redirect to nothing":
                sites.redirect(name, f"/nothing-behind-{n}")
            case "file":
                sites.page(name, b"\x89PNG", headers={"Content-Type": "image/png"})


@pytest.mark.parametrize("engine", ["sqlite"])
def test_thousands_of_links_right_to_the_last_one(hf: Holdfast, ask: Ask, sql: Database, sites: Sites) -> None:
    a_large_site(sites, LINKS)
    expected = walked_offline(sites, "/0")
    id = analyze(ask, f"{sites.url}/0")
    hf.drain()
    facts = document(ask, id)["details"]["facts"]
    found = ask.get(f"/api/audits/{id}/broken-links").json()["broken_links"]
    assert {one["url"].removeprefix(sites.url) for one in found} == expected
    assert "/the-last" in expected
    assert len(expected) > 100
    assert (facts["links"], facts["broken_links"]) == (LINKS + 1, len(expected))
    [more] = [
        one for one in document(ask, id)["findings"] if one["check"] == "broken-links" and one["severity"] == "info"
    ]
    assert f"{len(expected) - 50:,} more" in more["text"]
    assert sql.value("select count(*) from broken_links where audit_id = :id", id=id) == len(expected)


def test_each_address_is_asked_for_once(fetcher: Fetcher, sites: Sites) -> None:
    sites.page("/", '<a href="/a">1</a><a href="/a#part">2</a><a href="a">3</a><base href="/b/"><a href="../a">4</a>')
    sites.page("/a", '<a href="/">back</a><a href="/gone">x</a>')
    walk = walked(fetcher, sites)
    assert sorted(sites.requests) == ["/", "/a", "/b/a", "/gone"]
    assert walk.pages == 2
    assert broken(walk, sites) == {"/gone", "/b/a"}
    [gone] = [link for link in walk.broken if link.url.endswith("/gone")]
    assert (gone.found_on, gone.pages, gone.problem) == (f"{sites.url}/a", 1, "answers 404")


def test_every_place_is_looked_at_where_a_page_names_another(fetcher: Fetcher, sites: Sites) -> None:
    """However it is written: as browsers read it."""
    body = """<HTML><BASE HREF="/b/"><A HREF="a1
">x</A><a href=" ../a2 ">x</a><a href="\\a3"><map><area href=a4></map><img srcset="s1,1.png 1x,s2.png 2x, s3.png">
<picture><source srcset=s4></picture><video src=v1 poster=v2><source src=v3><track src=v4></video><audio src=v5>
<embed src=e1><object data=e2></object><iframe src=e3></iframe><script src=c1></script><link rel=STYLESHEET href=c2>
<link rel="shortcut icon" href=c3><input type=IMAGE src=c4><meta http-equiv=Refresh content="9; url='r1'">
<a href="data:text/html,<a href=no>"><a href="?q=ü&amp;r=%C3%BC#part">x</a><a href="#top">x</a><a href="">x</a>"""
    sites.page("/", body)
    walk = walked(fetcher, sites)
    assert broken(walk, sites) == {
        "/b/a1", "/a2", "/a3", "/b/a4", "/b/s1,1.png", "/b/s2.png", "/b/s3.png", "/b/s4", "/b/v1", "/b/v2", "/b/v3",
        "/b/v4", "/b/v5", "/b/e1", "/b/e2", "/b/e3", "/b/c1", "/b/c2", "/b/c3", "/b/c4", "/b/r1",
        "/b/?q=%C3%BC&r=%C3%BC", "/b/",
    }  # fmt: skip


def test_a_page_that_can_not_be_read_is_told(fetcher: Fetcher, sites: Sites) -> None:
    sites.page("/", '<a href="/huge">x</a><a href="/gone">x</a>')
    sites.page("/huge", '<a href="/lost">x</a>' + " " * 2_000_000)
    walk = walked(fetcher, sites)
    assert broken(walk, sites) == {"/gone"}
    [finding] = [one for one in walk.tier().outcomes[0].findings if one.severity == "info"]
    assert finding.text.startswith("1 page not read")


def test_a_site_that_was_named_without_its_slash_is_asked_for_once(hf: Holdfast, ask: Ask, sites: Sites) -> None:
    sites.good("/", '<a href="/">Home</a>')
    id = analyze(ask, sites.url)
    hf.drain()
    assert sites.requests.count("/") == 2, "to be read, and as a link"
    assert (document(ask, id)["site"], document(ask, id)["details"]["facts"]["links"]) == (f"{sites.url}/", 1)


def test_what_other_sites_have_is_not_asked_for(fetcher: Fetcher, sites: Sites) -> None:
    with Sites() as other:
        links = f"{other.url}/x mailto:a@b tel:1 javascript:alert(1) data:text/html,x http:// //[ \x00".split(" ")
        sites.page("/", "".join(f"<a href='{link}'>x</a>" for link in links))
        assert walked(fetcher, sites).broken == []
        assert other.requests == []


def test_what_robots_txt_forbids_is_not_asked_for_but_counted(fetcher: Fetcher, sites: Sites) -> None:
    sites.page("/", '<a href="/private/a">x</a><a href="/b">y</a>')
    walk = walked(fetcher, sites, robots="User-agent: *\nDisallow: /*/a$")
    assert sorted(sites.requests) == ["/", "/b"]
    assert broken(walk, sites) == {"/b"}
    assert walk.tier().facts["unchecked_links"] == 1


def test_a_page_that_is_busy_for_a_moment_is_not_broken(fetcher: Fetcher, sites: Sites) -> None:
    tries: list[str] = []

    def busy_once(request: object) -> None:
        tries.append("x")
        request.reply(200 if len(tries) > 1 else 503, {"Content-Type": "text/html"}, b"<a href='/gone'>")  # type: ignore[attr-defined]

    sites.page("/", '<a href="/busy">x</a>')
    sites.pages["/busy"] = busy_once
    assert broken(walked(fetcher, sites), sites) == {"/gone"}
    assert len(tries) == 2


def test_what_only_a_login_opens_is_not_called_broken(fetcher: Fetcher, sites: Sites) -> None:
    sites.page("/", '<a href="/login">x</a><a href="/gone">y</a>')
    sites.page("/login", "", 401)
    assert broken(walked(fetcher, sites), sites) == {"/gone"}


def test_a_ring_of_redirects_ends(fetcher: Fetcher, sites: Sites) -> None:
    sites.page("/", '<a href="/ring">x</a>')
    sites.redirect("/ring", "/ring")
    [ring] = walked(fetcher, sites).broken
    assert "redirects more than" in str(ring.problem)


def test_a_site_without_end_is_left_at_a_limit_that_is_told(fetcher: Fetcher, sites: Sites) -> None:
    sites.page("/", "".join(f'<a href="/{n}">x</a>' for n in range(100)))
    walk = walked(fetcher, sites, most=50)
    assert (len(walk.links), walk.left) == (50, 51)
    [finding] = [one for one in walk.tier().outcomes[0].findings if one.severity == "info"]
    assert "51 links not checked" in finding.text


def test_a_slow_site_is_left_when_the_time_is_over(fetcher: Fetcher, sites: Sites) -> None:
    sites.page("/", "".join(f'<a href="/{n}">x</a>' for n in range(20)))
    walk = walked(fetcher, sites, longest=0.0)
    assert (walk.left, sites.requests) == (1, [])


def test_a_walk_that_is_given_up_ends_its_requests(fetcher: Fetcher, sites: Sites) -> None:
    sites.page("/", "".join(f'<a href="/{n}">x</a>' for n in range(100)))
    steps = Walk(fetcher, sites.url + "/", rules_of("")).steps()
    for _ in range(5):
        next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("links")]
    assert len(sites.requests) < 20
