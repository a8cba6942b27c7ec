"""What robots.txt allows: RFC 9309, and files as they are found."""

from __future__ import annotations

import pytest

from examples.crawl.robots import LARGEST, LONGEST_DELAY, Robots, parse

AGENT = "holdfast-crawl"


def rules(text: str | bytes, agent: str = AGENT) -> Robots:
    return parse(text.encode() if isinstance(text, str) else text, agent)


def allowed(text: str | bytes, target: str, agent: str = AGENT) -> bool:
    return rules(text, agent).allows(target)


@pytest.mark.parametrize(("pattern", "target", "matches"), [
    ("/", "/", True), ("/", "/a", True), ("/fish", "/fish", True), ("/fish", "/fish.html", True),
    ("/fish", "/fishheads/yummy.html", True), ("/fish", "/fish.php?id=anything", True), ("/fish", "/Fish.asp", False),
    ("/fish", "/catfish", False), ("/fish", "/?id=fish", False), ("/fish*", "/fishheads", True),
    ("/fish*", "/desert/fish", False), ("/fish/", "/fish/?id=anything", True), ("/fish/", "/fish", False),
    ("/*.php", "/folder/filename.php?parameters", True), ("/*.php", "/", False), ("/*.php", "/windows.PHP", False),
    ("/*.php$", "/filename.php", True), ("/*.php$", "/filename.php?parameters", False),
    ("/*.php$", "/filename.php5", False), ("/*.php$", "/a.php.php", True),
    ("/fish*.php", "/fishheads/catfish.php?x", True),
    ("/fish*.php", "/Fish.PHP", False), ("*", "/a", True), ("/a$b", "/a$b", True), ("/a*$", "/ab", True),
    ("/$", "/", True),
    ("/$", "/a", False), ("/*?*a=", "/x?b=1&a=2", True), ("/a**b", "/a-b", True), ("/ab*ab$", "/ab", False),
])  # fmt: skip
def test_patterns_match_as_the_standard_says(pattern: str, target: str, matches: bool) -> None:
    assert allowed(f"User-agent: *\nDisallow: {pattern}", target) is not matches


@pytest.mark.parametrize(("lines", "target", "allows"), [
    ("Allow: /p\nDisallow: /", "/page", True), ("Allow: /folder\nDisallow: /folder", "/folder/page", True),
    ("Allow: /page\nDisallow: /*.htm", "/page.htm", False), ("Allow: /page\nDisallow: /*.ph", "/page.php5", True),
    ("Allow: /$\nDisallow: /", "/", True), ("Allow: /$\nDisallow: /", "/page.htm", False),
    ("Disallow: /a\nAllow: /a/b", "/a/b/c", True), ("Disallow:", "/anything", True), ("Allow:", "/anything", True),
    ("", "/", True),
])  # fmt: skip
def test_the_longest_pattern_decides_and_of_equal_ones_that_which_allows(lines: str, target: str, allows: bool) -> None:
    assert allowed(f"User-agent: *\n{lines}", target) is allows


@pytest.mark.parametrize("agent", [
    "holdfast-crawl", "Holdfast-Crawl", "HOLDFAST-CRAWL/1.0", "holdfast-crawl (all of it)", "holdfast-crawl/2.1 x",
])  # fmt: skip
def test_our_own_group_counts_alone_however_it_is_spelled(agent: str) -> None:
    text = f"User-agent: *\nDisallow: /\n\nUser-agent: {agent}\nDisallow: /own\n"
    assert allowed(text, "/page")
    assert not allowed(text, "/own")


@pytest.mark.parametrize("agent", ["holdfast", "holdfast-crawler", "crawl", "my-holdfast-crawl", "otherbot"])
def test_a_name_that_only_begins_alike_is_somebody_elses(agent: str) -> None:
    assert allowed(f"User-agent: {agent}\nDisallow: /", "/")
    assert not allowed(f"User-agent: {agent}\nAllow: /\nUser-agent: *\nDisallow: /", "/")


def test_groups_of_one_name_are_one_and_names_in_a_row_share_a_group() -> None:
    text = "User-agent: a\nUser-agent: holdfast-crawl\n# note\nDisallow: /1\n\nUser-agent: b\nDisallow: /2\n" \
           "User-agent: holdfast-crawl\nDisallow: /3"  # fmt: skip
    assert [allowed(text, f"/{n}") for n in (1, 2, 3)] == [False, True, False]
    assert [allowed(text, f"/{n}", "b") for n in (1, 2, 3)] == [True, False, True]


def test_an_empty_group_of_ours_allows_everything() -> None:
    assert allowed("User-agent: holdfast-crawl\nDisallow:\n\nUser-agent: *\nDisallow: /", "/")


@pytest.mark.parametrize("line", ["Sitemap: https://s.example/map.xml", "Host: s.example", "Crawl-delay: 5"])
def test_what_is_neither_name_nor_rule_does_not_end_the_names_of_a_group(line: str) -> None:
    text = f"User-agent: holdfast-crawl\n{line}\n\nUser-agent: b\nDisallow: /x"
    assert not allowed(text, "/x")
    assert not allowed(text, "/x", "b")
    assert rules(text, "b").delay == 0.0, "a delay is for those that were named before it"
    assert rules(text).sitemaps == ["https://s.example/map.xml"] * line.startswith("Sitemap")


@pytest.mark.parametrize(("name", "text"), {
    "a byte order mark": "\ufeffUser-agent: *\nDisallow: /x",
    "carriage returns": "User-agent: *\rDisallow: /x\r",
    "line ends of Windows": "User-agent: *\r\nDisallow: /x\r\n",
    "no colon": "User-agent *\nDisallow /x",
    "a tab instead of a colon": "User-agent\t*\nDisallow\t/x",
    "no colon, and more words": "User-agent: *\nUser-agent all robots\nDisallow: /x\nDisallow all",
    "names that go on": "User-agents: *\nDisallowed: /x",
    "half a byte order mark": b"\xef\xbbUser-agent: *\nDisallow: /x",
    "misspelt": "Useragent: *\nDissalow: /x",
    "words apart": "User agent : *\nDisallow : /x",
    "letter case": "USER-AGENT: *\nDISALLOW: /x",
    "spaces": "  User-agent:*  \n\t Disallow:\t/x  ",
    "comments": "User-agent: * # all\nDisallow: /x # secret",
    "a star and more": "User-agent: * baz\nDisallow: /x",
    "nonsense around": "<html>\n\0\0\nUser-agent: *\n%%%\nDisallow: /x\n</html>",
    "blank lines in a group": "User-agent: *\n\n\nDisallow: /y\n\nDisallow: /x",
}.items())  # fmt: skip
def test_files_as_they_are_found_are_read(name: str, text: str | bytes) -> None:
    assert not allowed(text, "/x"), name
    assert allowed(text, "/z"), name


def test_a_file_in_utf_16_or_with_broken_bytes_is_read() -> None:
    assert not allowed("User-agent: *\nDisallow: /x".encode("utf-16"), "/x")
    assert not allowed(b"User-agent: *\n# caf\xe9\nDisallow: /x\nDisallow: /caf\xe9", "/x")
    assert not allowed(b"User-agent: *\nDisallow: /caf\xe9", "/caf%E9")


@pytest.mark.parametrize(("pattern", "target"), [
    ("/café", "/caf%C3%A9"), ("/caf%c3%a9", "/caf%C3%A9"), ("/foo/bar/%62%61%7A", "/foo/bar/baz"),
    ("/foo/bar/baz", "/foo/bar/%62%61%7A"), ("/ツ", "/%E3%83%84"), ("/a%3cd.html", "/a%3Cd.html"),
    ("/~joe", "/%7Ejoe/x"), ("/a-%2A.html", "/a-*.html"), ("/a%24", "/a$b"), ("/a$b", "/a%24b"),
])  # fmt: skip
def test_escaped_and_plain_characters_are_the_same(pattern: str, target: str) -> None:
    assert not allowed(f"User-agent: *\nDisallow: {pattern}", target)


def test_an_escaped_slash_is_not_a_slash_and_an_escaped_star_is_no_pattern() -> None:
    assert allowed("User-agent: *\nDisallow: /a-%2A.html", "/a-b.html")
    assert allowed("User-agent: *\nDisallow: /a%24", "/a")
    assert allowed("User-agent: *\nDisallow: /a/b", "/a%2Fb")
    assert not allowed("User-agent: *\nDisallow: /a%2fb", "/a%2Fb")


def test_rules_before_any_name_are_for_nobody() -> None:
    assert allowed("Disallow: /\nUser-agent: *\nDisallow: /x", "/y")


@pytest.mark.parametrize(("line", "seconds"), [
    ("Crawl-delay: 10", 10.0), ("crawl-delay: 0.5", 0.5), ("Crawl-delay: 1,5", 1.5), ("Crawl-delay: 5 # s", 5.0),
    ("Crawl-delay: 3s", 3.0), ("Crawl-delay: soon", 0.0), ("Crawl-delay: -1", 0.0), ("Crawl-delay: inf", 0.0),
    ("Crawl-delay: nan", 0.0), ("Crawl-delay: .25", 0.25), ("Crawl-delay: 1e300", LONGEST_DELAY),
    ("Crawl-delay:", 0.0), ("Crawl-delay: 2\nCrawl-delay: 4", 4.0),
])  # fmt: skip
def test_the_delay_is_that_of_our_group(line: str, seconds: float) -> None:
    assert rules(f"User-agent: *\n{line}\nDisallow: /x").delay == seconds
    assert rules(f"User-agent: other\n{line}\n\nUser-agent: *\nDisallow:").delay == 0.0


def test_the_rules_behind_a_delay_are_in_the_same_group() -> None:
    text = "User-agent: *\nCrawl-delay: 3\nDisallow: /x\nUser-agent: other\nDisallow: /"
    assert (allowed(text, "/x"), allowed(text, "/y")) == (False, True)


def test_a_very_long_file_is_read_as_far_as_half_a_megabyte() -> None:
    filler = b"# filler\n" * (LARGEST // 9 - 10)
    assert not parse(b"User-agent: *\n" + filler + b"Disallow: /x\n", AGENT).allows("/x")
    assert parse(b"User-agent: *\n" + b"# filler\n" * LARGEST + b"Disallow: /x\n", AGENT).allows("/x")


def test_a_pattern_of_many_stars_does_not_take_forever() -> None:
    """With backtracking this would take years."""
    assert allowed(f"User-agent: *\nDisallow: /{'a*' * 5_000}b$", "/" + "a" * 2_000)


def test_the_file_itself_may_always_be_read() -> None:
    assert allowed("User-agent: *\nDisallow: /", "/robots.txt")
